#include "engine/world.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int kPollMs = 100;
constexpr int kStopTimeoutMs = 2000;
// A process that closed its channel may not have ended yet.
constexpr int kEndingMs = 300;
// Outside of steps: a rank that reads its files moves at every block, and links have deadlines of their own.
constexpr int kQuietMs = 60'000;
// There a stopped or cut-off process keeps nobody in a gate, while disks and memory are at their busiest: more patience
// than in a step, and as much as the kernel has with a cable that is cut.
constexpr int kStoppedMs = 5'000;
// After the first sign of trouble, how long the front listens for a better one: a dead process explains its peers'
// errors.
constexpr int kPostMortemMs = 300;

UniqueFd open_door(const RemoteOptions& remote) {
  if (!remote.meet.socket_name.empty()) return listen_on_socket_name(remote.meet.socket_name);
  const Listener listener =
      Listener::open(remote.meet.endpoint, remote.key.has_value(), "choose another port for --listen");
  UniqueFd socket(::fcntl(listener.fd(), F_DUPFD_CLOEXEC, 3));
  if (!socket) fail(ErrorKind::kInternal, "cannot duplicate a descriptor: {}", errno_text(errno));
  return socket;
}

}  // namespace

World::Patience World::until_it_ends(int gate_timeout_ms) {
  return {.quiet_ms = kQuietMs, .after_failure_ms = kPostMortemMs, .stopped_ms = std::max(kStoppedMs, gate_timeout_ms)};
}

World::World(int ranks, const LaunchOptions& launch, const RemoteOptions& remote, Report report)
    : ranks_(ranks),
      local_(ranks - remote.ranks),
      report_(std::move(report)),
      progress_(std::make_shared<const ProgressPage>(ProgressPage::create(ranks))) {
  // The door opens first: a port that is taken is told before anything is started.
  if (remote.ranks > 0) {
    const bool same_user = !remote.meet.socket_name.empty();
    UniqueFd door = open_door(remote);
    MeetingPoint meet = remote.meet;
    if (!same_user) meet.endpoint.port = local_address(door.get()).port();
    reception_ =
        std::make_unique<Reception>(std::move(door), meet.text(), remote.key ? *remote.key : no_key(), local_, ranks_,
                                    same_user, [this](const std::string& line) { World::report(line); });
    if (remote.announce) remote.announce(meet.endpoint);
  }
  launcher_ = std::make_unique<Launcher>(local_, progress_->fd(), launch);
  if (remote.ranks > 0) receive_ranks(remote);
}

World::~World() = default;

void World::receive_ranks(const RemoteOptions& remote) {
  if (!remote.hosts.empty()) ssh_ = std::make_unique<SshLauncher>(remote.ssh, remote.hosts, remote.meet, *remote.key);
  std::vector<JoinedRank> joined = reception_->wait(remote.timeout_ms, [&] {
    if (ssh_) ssh_->check();
    for (int rank = 0; rank < local_; ++rank) {
      if (const auto ended = launcher_->ending(rank))
        fail(ErrorKind::kLink, "{} {} while the others were joining: start again", name(rank), *ended);
    }
  });
  hub_ = std::make_unique<ProgressHub>(progress_);
  for (JoinedRank& rank : joined) {
    hub_->add(1u << rank.rank, std::move(rank.progress));
    joined_.push_back({Channel(std::move(rank.control)), std::move(rank.from), std::move(rank.host)});
  }
}

pid_t World::process(int rank) const { return is_local(rank) ? launcher_->process(rank) : 0; }

std::string World::name(int rank) const {
  if (!is_local(rank)) return fmt::format("rank {} ({})", rank, joined_[static_cast<size_t>(rank - local_)].from);
  return fmt::format("rank {} (process {})", rank, launcher_->process(rank));
}

std::string World::host(int rank) const {
  return is_local(rank) ? std::string() : joined_[static_cast<size_t>(rank - local_)].host;
}

void World::report(const std::string& line) const {
  if (report_) report_(line);
}

void World::send(int rank, MessageType type, std::span<const std::byte> bytes) {
  try {
    channel(rank).send(static_cast<uint32_t>(type), bytes);
  } catch (const Error&) {
    // listen() finds its channel closed, and says more.
  }
}

std::vector<RankReport> World::listen(MessageType type, const Patience& patience, uint32_t asked) {
  const auto ranks = static_cast<size_t>(ranks_);
  std::vector<RankReport> reports(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    if ((asked >> r & 1) == 0) reports[r].kind = RankReport::Kind::kUnasked;
  }
  std::vector<Motion> motions(ranks);
  const int64_t begin_us = now_us();
  for (size_t r = 0; r < ranks; ++r) motions[r] = {moved(static_cast<int>(r)), begin_us, begin_us};
  int64_t trouble_us = -1;
  while (true) {
    std::array<pollfd, kMaxRanks> fds{};
    size_t missing = 0;
    for (size_t r = 0; r < ranks; ++r) {
      const bool awaited = reports[r].kind == RankReport::Kind::kMissing;
      fds[r] = {awaited ? channel(static_cast<int>(r)).fd() : -1, POLLIN, 0};
      missing += awaited;
    }
    if (missing == 0) return reports;
    ::poll(fds.data(), ranks, trouble_us < 0 ? kPollMs : kPollMs / 5);
    const int64_t time_us = now_us();
    for (size_t r = 0; r < ranks; ++r) {
      if (reports[r].kind != RankReport::Kind::kMissing || fds[r].revents == 0) continue;
      RankReport& report = reports[r];
      const Channel::Received received = channel(static_cast<int>(r)).receive(report.message, 0);
      if (received == Channel::Received::kTimeout) continue;
      const auto got = static_cast<MessageType>(report.message.type);
      if (received == Channel::Received::kClosed) {
        report.kind = RankReport::Kind::kGone;
        progress_->mark_gone(static_cast<int>(r));
        if (!patience.survives) return reports;
        if (trouble_us < 0) trouble_us = time_us;
        continue;
      }
      if (got == MessageType::kReport) {
        World::report(fmt::format("rank {}: {}", r, message_text(report.message)));
      } else if (got == MessageType::kFailure || got == MessageType::kStepFailed) {
        report.kind = RankReport::Kind::kFailed;
        report.failure = from_json<RankFailure>(message_text(report.message));
        if (trouble_us < 0) trouble_us = time_us;
      } else if (got == type) {
        report.kind = RankReport::Kind::kMessage;
        if (trouble_us < 0 && patience.tells_failure && patience.tells_failure(report.message)) trouble_us = time_us;
      } else {
        fail(ErrorKind::kInternal, "rank {} sent a message of type {}", r, report.message.type);
      }
    }
    bool all_still = true, one_stopped = false;
    for (size_t r = 0; r < ranks; ++r) {
      const int rank = static_cast<int>(r);
      Motion& motion = motions[r];
      if (const uint64_t counter = moved(rank); counter != motion.counter) motion = {counter, time_us, time_us};
      if (trouble_us < 0) all_still &= time_us - motion.moved_us > int64_t{patience.quiet_ms} * 1000;
      if (reports[r].kind != RankReport::Kind::kMissing) continue;
      one_stopped |= patience.stopped_ms > 0 && has_stopped(rank, motion, int64_t{patience.stopped_ms} * 1000);
      if (trouble_us < 0) continue;
      const int64_t since_us = patience.for_movers ? std::max(motion.moved_us, trouble_us) : trouble_us;
      all_still &= time_us - since_us > int64_t{patience.after_failure_ms} * 1000 ||
                   (patience.silent_ms > 0 && is_past_hope(rank, patience.silent_ms));
    }
    if (!all_still && !one_stopped) continue;
    for (size_t r = 0; r < ranks; ++r) {
      if (reports[r].kind != RankReport::Kind::kMissing) continue;
      reports[r].still_ms = (time_us - motions[r].moved_us) / 1000;
      silent_ |= 1u << r;
    }
    return reports;
  }
}

// For so long its process was seen stopped, or was not heard of.
bool World::has_stopped(int rank, Motion& motion, int64_t for_us) const {
  if (!is_local(rank)) return progress_->is_silent(rank, for_us);
  const int64_t time_us = now_us();
  if (!launcher_->is_stopped(rank)) motion.ran_us = time_us;
  return time_us - motion.ran_us > for_us;
}

std::string World::ending(int rank) {
  if (!is_local(rank)) return "hung up";
  const int64_t end_us = now_us() + int64_t{kEndingMs} * 1000;
  do {
    if (const auto ended = launcher_->ending(rank)) return *ended;
    ::usleep(5000);
  } while (now_us() < end_us);
  return "closed its control channel";
}

std::string World::loss(int rank) {
  if (progress_->is_gone(rank)) return fmt::format("{} {}", name(rank), ending(rank));
  if (is_local(rank) && launcher_->is_stopped(rank))
    return fmt::format("{} is stopped: continue it (kill -CONT) and start again", name(rank));
  return fmt::format("{} does not answer: it is stopped, stuck or cut off", name(rank));
}

// It will not report soon: its process has not been heard of for as long as a peer would wait. A stopped one of this
// host may go on at any moment (a terminal, a debugger, a snapshot), and its world with it.
bool World::is_past_hope(int rank, int silent_ms) const {
  return !is_local(rank) && progress_->is_silent(rank, int64_t{silent_ms} * 1000);
}

// For all that is known of its process at this moment.
bool World::is_stopped(int rank) const {
  return is_local(rank) ? launcher_->is_stopped(rank) : progress_->is_silent(rank, silence_us(0));
}

// Stopped processes and cables explain much, and cost the person one command.
std::string World::stopped_text(const std::vector<RankReport>& reports) const {
  std::string text;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (!is_stopped(rank)) continue;
    if (is_local(rank)) {
      text +=
          fmt::format(" (rank {}'s process {} is stopped: kill -CONT continues it)", rank, launcher_->process(rank));
    } else if (reports[static_cast<size_t>(rank)].kind == RankReport::Kind::kMissing) {
      text +=
          fmt::format(" (nothing is heard of {}: its process is stopped, its host down or the cable out)", name(rank));
    }
  }
  return text;
}

std::optional<Error> World::explain(const std::vector<RankReport>& reports, const std::string& doing, uint32_t epoch) {
  const auto find = [&](auto&& is) {
    const auto at = std::ranges::find_if(reports, is);
    return at == reports.end() ? -1 : static_cast<int>(at - reports.begin());
  };
  const auto failed = [](const RankReport& r) { return r.kind == RankReport::Kind::kFailed; };
  const int gone = find([](const RankReport& r) { return r.kind == RankReport::Kind::kGone; });
  if (gone >= 0) {
    return Error(ErrorKind::kLink,
                 fmt::format("{} {} {}: the other ranks were ended; start again", name(gone), ending(gone), doing));
  }
  int told = find([&](const RankReport& r) { return failed(r) && r.failure.kind != ErrorKind::kLink; });
  if (const auto culprit = progress_->verdict(epoch); told < 0 && culprit) {
    if (failed(reports[static_cast<size_t>(culprit->origin)])) told = culprit->origin;
  }
  if (told < 0) told = find(failed);
  if (told >= 0) {
    const RankFailure& failure = reports[static_cast<size_t>(told)].failure;
    return Error(failure.kind, failure.text + stopped_text(reports));
  }
  // Who is stopped holds up the others.
  int missing = -1;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (reports[static_cast<size_t>(rank)].kind != RankReport::Kind::kMissing) continue;
    if (missing < 0 || (is_stopped(rank) && !is_stopped(missing))) missing = rank;
  }
  if (missing < 0) return std::nullopt;
  return Error(ErrorKind::kLink,
               fmt::format("{} made no progress for {} ms {}{}: start again", name(missing),
                           reports[static_cast<size_t>(missing)].still_ms, doing, stopped_text(reports)));
}

std::vector<Message> World::collect(MessageType type, const std::string& doing, const Patience& patience,
                                    uint32_t asked) {
  std::vector<RankReport> reports = listen(type, patience, asked);
  if (const auto error = explain(reports, doing, 0)) throw *error;
  std::vector<Message> messages;
  for (RankReport& report : reports) messages.push_back(std::move(report.message));
  return messages;
}

void World::stop(const std::string& reason) {
  reception_.reset();  // a rank that is told comes again at once, for the next world
  for (int rank = 0; rank < ranks_; ++rank) send(rank, MessageType::kStop, std::as_bytes(std::span(reason)));
  if (reason.empty()) launcher_->wait_all(kStopTimeoutMs);
}

}  // namespace coprime
