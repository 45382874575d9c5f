#include "tools/link_world.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <optional>

#include "base/clock.h"
#include "transport/channel.h"
#include "transport/memory_limit.h"

namespace coprime {
namespace {

constexpr uint32_t kReport = 1;
// How much longer than the time-out the others have when a member is lost: theirs passes first, and says more.
constexpr int kGraceMs = 1000;

// Everything that the members of one trial share, made before they are forked.
struct SharedLinks {
  std::shared_ptr<const ShmRegion> region;
  std::shared_ptr<const BareMemory> bare_memory;
  std::vector<std::vector<UniqueFd>> mesh, bare_mesh;
  std::shared_ptr<const ProgressPage> progress;
};

SharedLinks make_links(const LocalLinkOptions& options, const LinkTrial& trial, int members) {
  SharedLinks links;
  links.progress = std::make_shared<const ProgressPage>(ProgressPage::create(members));
  const auto bytes = static_cast<size_t>(trial.bytes);
  if (options.tcp) {
    links.mesh = loopback_mesh(members);
    links.bare_mesh = loopback_mesh(members);
  } else {
    links.region =
        std::make_shared<const ShmRegion>(ShmRegion::create(members, largest_slot_bytes(link_schedule(trial))));
    links.bare_memory = std::make_shared<const BareMemory>(members, bytes);
  }
  return links;
}

TrialReport run_member(const LocalLinkOptions& options, const LinkTrial& trial, SharedLinks links, int rank,
                       int members) {
  WorldLinks joined{.rank = rank, .ranks = members, .region = links.region};
  const bool own_core = usable_cores() >= members;
  std::unique_ptr<BareExchange> bare;
  if (options.tcp) {
    for (UniqueFd& socket : links.mesh[static_cast<size_t>(rank)]) joined.peers.push_back({std::move(socket), nullptr});
    bare = std::make_unique<BareSockets>(std::move(links.bare_mesh[static_cast<size_t>(rank)]), rank,
                                         static_cast<size_t>(trial.bytes), own_core);
    links.mesh.clear();  // the others' ends: who is gone shall be seen to be gone
    links.bare_mesh.clear();
  } else {
    for (int member = 0; member < members; ++member) joined.region_ranks.push_back(member);
    bare = std::make_unique<BareWindow>(links.bare_memory, rank, own_core);
  }
  const ExchangeSettings settings{.wait = choose_wait_policy(usable_cores(), members, 1),
                                  .timeout_ms = options.timeout_ms};
  Exchange exchange(std::move(joined), link_schedule(trial), links.progress, settings);
  return run_link_trial(trial, {exchange, *links.progress, bare.get(), options.timeout_ms});
}

// A forked member. Its process is ended and reaped with the object.
class Member {
 public:
  template <class Body>
  explicit Member(const Body& body) : channels_(Channel::make_pair()) {
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ < 0) fail(ErrorKind::kInternal, "cannot start a rank: {}", errno_text(errno));
    if (process_ > 0) {
      channels_.second.reset();
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    channels_.first.reset();
    ::_exit(speak(body));
  }
  Member(Member&& other) noexcept : channels_(std::move(other.channels_)), process_(std::exchange(other.process_, 0)) {}
  ~Member() {
    if (process_ <= 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }

  Channel& channel() { return *channels_.first; }

 private:
  struct Ends {
    std::optional<Channel> first, second;
    explicit Ends(std::pair<Channel, Channel> pair) : first(std::move(pair.first)), second(std::move(pair.second)) {}
  };

  template <class Body>
  int speak(const Body& body) {
    TrialReport report;
    try {
      report = body();
    } catch (const std::exception& error) {
      report.failure = error.what();
    }
    try {
      const std::string text = to_json(report);
      channels_.second->send(kReport, std::as_bytes(std::span(text)));
      return 0;
    } catch (const std::exception&) {
      return 1;  // the parent is gone, or will see the channel closed
    }
  }

  Ends channels_;
  pid_t process_ = 0;
};

// The member's report once it is there or the member is gone; nothing before.
std::optional<TrialReport> read_report(Channel& channel, int rank) {
  Message message;
  const Channel::Received received = channel.receive(message, 0);
  if (received == Channel::Received::kTimeout) return std::nullopt;
  if (received == Channel::Received::kMessage)
    return trial_report_from_json({reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()});
  TrialReport lost;
  lost.failure = fmt::format("rank {}'s process ended before it reported", rank);
  return lost;
}

void check_memory(const LinkTrial& trial, int members) {
  // Slots and the floor's, two of each, and a rank's own vectors.
  const int64_t vectors = 4 + 2 * kStreamPushes, needed = members * vectors * trial.bytes;
  const int64_t available = available_memory_bytes();
  if (needed < available) return;
  fail(ErrorKind::kUsage,
       "{} ranks with vectors of {} bytes need {} MiB, {} MiB are available: leave out large --sizes", members,
       trial.bytes, needed >> 20, available >> 20);
}

}  // namespace

std::vector<TrialReport> LocalLinkWorld::run(const LinkTrial& trial, std::span<const int> members) {
  const int count = static_cast<int>(members.size());
  check_memory(trial, count);
  std::vector<Member> processes;
  processes.reserve(members.size());
  {
    SharedLinks links = make_links(options_, trial, count);
    for (int rank = 0; rank < count; ++rank)
      processes.emplace_back([&] { return run_member(options_, trial, std::move(links), rank, count); });
  }
  std::vector<std::optional<TrialReport>> reports(members.size());
  std::optional<int64_t> deadline_us;  // once a member failed
  for (size_t missing = members.size(); missing > 0;) {
    if (deadline_us && now_us() > *deadline_us) break;
    std::array<pollfd, kMaxRanks> fds{};
    for (size_t i = 0; i < members.size(); ++i) fds[i] = {reports[i] ? -1 : processes[i].channel().fd(), POLLIN, 0};
    ::poll(fds.data(), members.size(), 100);
    for (size_t i = 0; i < members.size(); ++i) {
      if (reports[i] || fds[i].revents == 0) continue;
      reports[i] = read_report(processes[i].channel(), members[i]);
      if (!reports[i]) continue;
      --missing;
      if (!reports[i]->failure.empty() && !deadline_us)
        deadline_us = now_us() + (int64_t{options_.timeout_ms} + kGraceMs) * 1000;
    }
  }
  std::vector<TrialReport> all;
  for (size_t i = 0; i < members.size(); ++i) {
    if (reports[i]) {
      all.push_back(std::move(*reports[i]));
      continue;
    }
    TrialReport stuck;
    stuck.failure = fmt::format("rank {} did not report when another had failed", members[i]);
    all.push_back(std::move(stuck));
  }
  return all;
}

}  // namespace coprime
