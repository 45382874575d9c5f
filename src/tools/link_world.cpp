#include "tools/link_world.h"

#include <algorithm>

#include "base/error.h"

namespace coprime {
namespace {

// Making links has deadlines of its own, which pass first and say more.
constexpr int kLinkingQuietMs = 16'000, kLinkingAfterFailureMs = 12'000;
// A rank that makes or fills long vectors is quiet for a while.
constexpr int kTrialQuietMs = 15'000;
// How much longer than the time-out the others have when a member failed.
constexpr int kGraceMs = 1000;

const World::Patience kLinking{
    .quiet_ms = kLinkingQuietMs, .after_failure_ms = kLinkingAfterFailureMs, .survives = true};

bool tells_failure(const Message& message) { return !trial_report_from_json(message_text(message)).failure.empty(); }

TrialReport failed(std::string why) {
  TrialReport report;
  report.failure = std::move(why);
  return report;
}

}  // namespace

RankedLinkWorld::RankedLinkWorld(const LinkWorldOptions& options)
    : options_(options),
      world_(options.ranks, options.launch, options.remote, [this](const std::string& line) { report_once(line); }) {
  const std::vector<LinkStart> starts = link_starts(world_, options.remote,
                                                    {.threads = 1,
                                                     .gate_timeout_ms = options.timeout_ms,
                                                     .port = options.port,
                                                     .wire_auth = options.wire_auth,
                                                     .verbs = options.verbs,
                                                     .ucx = options.wish == Link::kUcx});
  try {
    for (const LinkStart& start : starts) world_.send_json(start.rank, MessageType::kMeasure, start);
    for (const Message& message :
         world_.collect(MessageType::kFacts, "before the first trial", World::until_it_ends(options_.timeout_ms)))
      facts_.push_back(from_json<RankFacts>(message_text(message)));
    check_wish();
  } catch (const Error& error) {
    world_.stop(error.what());
    throw;
  }
}

RankedLinkWorld::~RankedLinkWorld() { world_.stop({}); }

// Each trial makes links, and would say the same again.
void RankedLinkWorld::report_once(const std::string& line) {
  if (options_.report && reported_.insert(line).second) options_.report(line);
}

// A wish that two ranks cannot be granted is told before anything is measured.
void RankedLinkWorld::check_wish() const {
  const std::vector<RankPlace> places = places_of(facts_);
  for (int a = 0; a < ranks(); ++a) {
    const std::vector<int> group = memory_group(options_.wish, places, a);
    for (int b = a + 1; b < ranks(); ++b)
      choose_link(options_.wish, places, a, b, std::ranges::find(group, b) != group.end(), {});
  }
}

std::vector<LinkHost> RankedLinkWorld::hosts() const {
  std::vector<std::string> identities;
  std::vector<LinkHost> hosts;
  for (int rank = 0; rank < ranks(); ++rank) {
    const RankFacts& facts = facts_[static_cast<size_t>(rank)];
    const auto known = std::ranges::find(identities, facts.host);
    const auto at = static_cast<size_t>(known - identities.begin());
    if (known == identities.end()) {
      identities.push_back(facts.host);
      hosts.push_back({world_.host(rank).empty() ? "this host" : world_.host(rank), {}, facts.cores});
    }
    hosts[at].ranks.push_back(rank);
  }
  return hosts;
}

// Why the members have no links; empty: they have.
std::string RankedLinkWorld::connect(const LinkTrial& trial, uint32_t members) {
  const std::string text = to_json(trial);
  for (const int rank : trial.members) world_.send(rank, MessageType::kTrial, std::as_bytes(std::span(text)));
  try {
    epoch_ += 2;
    MadeLinks made = make_links(world_, facts_, {options_.wish, epoch_, kLinking, members, without_verbs_});
    without_verbs_.merge(made.fallbacks);
    for (std::string& note : made.notes) {
      if (std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(std::move(note));
    }
    return {};
  } catch (const Error& error) {
    for (const int rank : trial.members) {
      if (!world_.answers(rank)) return world_.loss(rank);
    }
    if (error.kind() != ErrorKind::kLink) throw;
    return error.what();
  }
}

std::vector<TrialReport> RankedLinkWorld::run(const LinkTrial& trial) {
  uint32_t members = 0;
  for (const int rank : trial.members) members |= 1u << rank;
  std::vector<TrialReport> all(trial.members.size());
  if (std::string why = connect(trial, members); !why.empty()) {
    all[0] = failed(std::move(why));
    return all;
  }
  for (const int rank : trial.members) world_.send(rank, MessageType::kBeginTrial, {});
  std::vector<RankReport> reports = world_.listen(MessageType::kTrialReport,
                                                  {.quiet_ms = options_.timeout_ms + kTrialQuietMs,
                                                   .after_failure_ms = options_.timeout_ms + kGraceMs,
                                                   .for_movers = true,
                                                   .survives = true,
                                                   .tells_failure = tells_failure},
                                                  members);
  for (size_t m = 0; m < all.size(); ++m) {
    const int rank = trial.members[m];
    RankReport& report = reports[static_cast<size_t>(rank)];
    if (report.kind == RankReport::Kind::kMessage) {
      all[m] = trial_report_from_json(message_text(report.message));
    } else {
      all[m] = failed(report.kind == RankReport::Kind::kFailed ? report.failure.text : world_.loss(rank));
    }
  }
  return all;
}

}  // namespace coprime
