// Starts the ranks of a world on this host, as processes of this program or as threads (for tests), and ends them.
// Processes die with the one that started them, however it dies.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/rank.h"
#include "transport/channel.h"

namespace coprime {

enum class RanksAs : uint8_t { kProcesses, kThreads };

struct LaunchOptions {
  RanksAs as = RanksAs::kProcesses;
  std::filesystem::path program = "/proc/self/exe";  // what a rank's process executes, with the argument kLocalRank
  RankHooks hooks;                                   // threads only, as what follows
  MeasuringService measure;                          // see RankPlacement
};

class Launcher {
 public:
  // Starts ranks 0 to `ranks` - 1. Error(kInternal) when a process cannot be started.
  Launcher(int ranks, int progress_fd, const LaunchOptions& options);
  // Ends what still runs: processes by SIGKILL, threads by closing their channels.
  ~Launcher();
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;

  int ranks() const { return static_cast<int>(channels_.size()); }
  Channel& channel(int rank) { return channels_[static_cast<size_t>(rank)]; }
  pid_t process(int rank) const;  // 0 for a thread

  // "was killed by signal 9 (Killed)", "exited with status 1": how a rank's process ended, if it has.
  std::optional<std::string> ending(int rank);
  // Whether a rank's process is stopped (SIGSTOP, a debugger).
  bool is_stopped(int rank) const;
  // Waits for processes that were told to stop, at most timeout_ms; true if all have ended.
  bool wait_all(int timeout_ms);

 private:
  void start_process(int rank, Channel rank_end, int progress_fd, const LaunchOptions& options);
  void start_thread(Channel rank_end, int progress_fd, const LaunchOptions& options);

  struct Process {
    pid_t pid = 0;
    bool reaped = false;
    int status = 0;
  };
  std::vector<Channel> channels_;
  std::vector<Process> processes_;
  std::vector<std::thread> threads_;
};

// The first argument of a rank's process, for main(). Its second, the rank, is for people who look at processes.
inline constexpr std::string_view kLocalRank = "local-rank";

// The rank's side of a process: descriptors 3 (control) and 4 (progress).
int rank_process_main(const MeasuringService& measure = {});

}  // namespace coprime
