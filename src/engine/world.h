// The front's ranks, wherever they run: it starts those of this host, receives those that join, passes messages, and
// finds out who failed, died or stands still. Knows nothing of models or steps.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/join.h"
#include "engine/launcher.h"
#include "engine/messages.h"
#include "engine/reception.h"
#include "engine/ssh_launcher.h"
#include "transport/progress_mirror.h"
#include "transport/progress_page.h"

namespace coprime {

// Ranks that come from elsewhere.
struct RemoteOptions {
  int ranks = 0;                 // the last ones of the world
  MeetingPoint meet;             // where they join
  std::optional<SecretKey> key;  // none: only on the loopback, or over the Unix socket
  std::vector<HostLine> hosts;   // started by ssh; who is not must come by itself
  std::filesystem::path ssh = "ssh";
  int timeout_ms = 300'000;  // for all to join
  // Told once the door is open: what a launcher's processes are to be told of it. May take its time, and throw.
  std::function<void(const Endpoint& door)> announce;
};

// What a person should know while a world runs: who is missing, who was refused, which link fell back.
using Report = std::function<void(const std::string&)>;

// What came from one rank.
struct RankReport {
  enum class Kind : uint8_t { kMissing, kMessage, kFailed, kGone, kUnasked };
  Kind kind = Kind::kMissing;
  Message message;
  RankFailure failure;
  int64_t still_ms = 0;  // of one that is missing: how long its counter had not moved
};

class World {
 public:
  // Returns when all ranks are there. Error(kLink) naming those that are not.
  World(int ranks, const LaunchOptions& launch, const RemoteOptions& remote, Report report);
  ~World();  // ends what still runs
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int ranks() const { return ranks_; }
  const ProgressPage& progress() const { return *progress_; }
  pid_t process(int rank) const;     // 0 for a thread, and for a rank from elsewhere
  std::string name(int rank) const;  // "rank 2 (process 71)", "rank 2 (10.0.0.3:5123)"
  bool is_local(int rank) const { return rank < local_; }
  std::string host(int rank) const;  // by which others reach it; empty: on the front's host
  void report(const std::string& line) const;

  // A rank that is gone is noticed when it is listened to.
  void send(int rank, MessageType type, std::span<const std::byte> bytes);
  template <class T>
  void send_json(int rank, MessageType type, const T& value) {
    const std::string text = to_json(value);
    send(rank, type, std::as_bytes(std::span(text)));
  }

  // How long to listen for those that say nothing.
  struct Patience {
    int quiet_ms;             // while no rank's counter moves, and none has failed
    int after_failure_ms;     // once one has failed
    int stopped_ms = 0;       // of a process that is stopped or not heard of, and does not move; 0: as any other
    bool for_movers = false;  // the latter begins anew when the awaited rank's counter moves
    int silent_ms = 0;        // then a far rank that was not heard for so long is not waited for; 0: as all others
    bool survives = false;    // the world goes on without a rank that is gone: the others are listened to all the same
    bool (*tells_failure)(const Message&) = nullptr;  // of a message that came: counts as a failure, too
  };
  static constexpr uint32_t kAllRanks = (1u << kMaxRanks) - 1;
  // Outside of steps, of who ends the world with the first failure.
  static Patience until_it_ends(int gate_timeout_ms);

  // One report of every asked rank (a bit each): a message of this type, or its failure. Ends early when a rank is
  // gone, unless the world survives it, and when patience does.
  std::vector<RankReport> listen(MessageType type, const Patience& patience, uint32_t asked = kAllRanks);
  // Whether a rank may be asked once more: it is not gone, and answered whenever it was asked.
  bool answers(int rank) const { return (silent_ >> rank & 1) == 0 && !progress_->is_gone(rank); }
  // Of one that does not: "rank 2 (process 71) was killed by signal 9 (Killed)", "rank 2 (10.0.0.3:5123) hung up".
  std::string loss(int rank);

  // What went wrong, if not every report is a message: who is dead, who failed for a reason of its own, whom the world
  // blames in this epoch. `doing`: "while loading".
  std::optional<Error> explain(const std::vector<RankReport>& reports, const std::string& doing, uint32_t epoch);
  // Both: the messages by rank, or the error.
  std::vector<Message> collect(MessageType type, const std::string& doing, const Patience& patience,
                               uint32_t asked = kAllRanks);

  // Closes the door, and tells every rank to stop, and why if all is not well; if it is, waits a while for those of
  // this host.
  void stop(const std::string& reason);

 private:
  Channel& channel(int rank) {
    return is_local(rank) ? launcher_->channel(rank) : joined_[static_cast<size_t>(rank - local_)].channel;
  }
  uint64_t moved(int rank) const { return progress_->counter(rank).load(std::memory_order_relaxed); }
  std::string ending(int rank);  // of a rank that is gone: "was killed by signal 9 (Killed)"
  bool is_past_hope(int rank, int silent_ms) const;
  bool is_stopped(int rank) const;
  // How a rank was seen to move while it was listened to.
  struct Motion {
    uint64_t counter = 0;
    int64_t moved_us = 0, ran_us = 0;  // when its counter last moved, and its process was last seen not stopped
  };
  bool has_stopped(int rank, Motion& motion, int64_t for_us) const;
  std::string stopped_text(const std::vector<RankReport>& reports) const;
  void receive_ranks(const RemoteOptions& remote);

  struct Joined {
    Channel channel;
    std::string from, host;
  };
  const int ranks_, local_;
  const Report report_;
  std::shared_ptr<const ProgressPage> progress_;
  std::unique_ptr<Launcher> launcher_;
  std::unique_ptr<Reception> reception_;
  std::unique_ptr<SshLauncher> ssh_;
  std::vector<Joined> joined_;
  std::unique_ptr<ProgressHub> hub_;
  uint32_t silent_ = 0;  // a bit for each rank that did not answer as long as patience lasted
};

}  // namespace coprime
