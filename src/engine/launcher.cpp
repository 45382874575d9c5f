#include "engine/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int kControlFd = 3, kProgressFd = 4;

UniqueFd duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 64));  // above the numbers that a rank's process gives them
  if (!copy) fail(ErrorKind::kInternal, "cannot duplicate a descriptor: {}", errno_text(errno));
  return copy;
}

// Between fork and exec only calls that are safe there. Ends in exec or _exit.
[[noreturn]] void become_rank(const char* program, char* const* arguments, int control, int progress, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // the parent died before the line above
  ::signal(SIGPIPE, SIG_IGN);
  const bool ready = ::dup2(control, kControlFd) >= 0 && ::dup2(progress, kProgressFd) >= 0;
  if (ready) ::execv(program, arguments);
  ::_exit(127);
}

}  // namespace

Launcher::Launcher(int ranks, int progress_fd, const LaunchOptions& options) {
  for (int rank = 0; rank < ranks; ++rank) {
    auto [front_end, rank_end] = Channel::make_pair();
    channels_.push_back(std::move(front_end));
    if (options.as == RanksAs::kProcesses) {
      start_process(rank, std::move(rank_end), progress_fd, options);
    } else {
      start_thread(std::move(rank_end), progress_fd, options);
    }
  }
}

void Launcher::start_process(int rank, Channel rank_end, int progress_fd, const LaunchOptions& options) {
  const UniqueFd control = duplicate(rank_end.fd()), progress = duplicate(progress_fd);
  std::string name = "coprime", command(kLocalRank), index = std::to_string(rank);
  char* const arguments[] = {name.data(), command.data(), index.data(), nullptr};
  const std::string program = options.program.string();
  const pid_t parent = ::getpid(), child = ::fork();
  if (child < 0) fail(ErrorKind::kInternal, "cannot start rank {}: {}", rank, errno_text(errno));
  if (child == 0) become_rank(program.c_str(), arguments, control.get(), progress.get(), parent);
  processes_.push_back({.pid = child});
}

void Launcher::start_thread(Channel rank_end, int progress_fd, const LaunchOptions& options) {
  threads_.emplace_back([control = std::move(rank_end), progress = duplicate(progress_fd), options]() mutable {
    const auto page = std::make_shared<const ProgressPage>(ProgressPage::attach(std::move(progress)));
    run_rank(control, page, {.hooks = options.hooks, .measure = options.measure});
  });
}

Launcher::~Launcher() {
  for (Process& process : processes_) {
    if (!process.reaped) ::kill(process.pid, SIGKILL);
  }
  for (Process& process : processes_) {
    if (!process.reaped) ::waitpid(process.pid, &process.status, 0);
  }
  channels_.clear();
  for (std::thread& thread : threads_) thread.join();
}

pid_t Launcher::process(int rank) const { return processes_.empty() ? 0 : processes_[static_cast<size_t>(rank)].pid; }

std::optional<std::string> Launcher::ending(int rank) {
  if (processes_.empty()) return std::nullopt;
  Process& process = processes_[static_cast<size_t>(rank)];
  if (!process.reaped) process.reaped = ::waitpid(process.pid, &process.status, WNOHANG) == process.pid;
  if (!process.reaped) return std::nullopt;
  if (WIFSIGNALED(process.status)) {
    const int signal = WTERMSIG(process.status);
    return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));
  }
  return fmt::format("exited with status {}", WEXITSTATUS(process.status));
}

bool Launcher::is_stopped(int rank) const {
  if (processes_.empty()) return false;
  std::ifstream stat(fmt::format("/proc/{}/stat", process(rank)));
  std::string line;
  std::getline(stat, line);
  const size_t name_end = line.rfind(')');  // "pid (name) state ..."
  return name_end != std::string::npos && name_end + 2 < line.size() &&
         (line[name_end + 2] == 'T' || line[name_end + 2] == 't');
}

bool Launcher::wait_all(int timeout_ms) {
  const int64_t end_us = now_us() + int64_t{timeout_ms} * 1000;
  for (int rank = 0; rank < static_cast<int>(processes_.size());) {
    if (ending(rank)) {
      ++rank;
    } else if (now_us() > end_us) {
      return false;
    } else {
      ::usleep(500);
    }
  }
  return true;
}

int rank_process_main(const MeasuringService& measure) {
  ::prctl(PR_SET_NAME, "coprime-rank");  // ps shows this and not the name of the link that was executed
  for (int fd : {kControlFd, kProgressFd}) {
    if (::fcntl(fd, F_GETFD) < 0) return exit_code(ErrorKind::kUsage);
  }
  Channel control{UniqueFd(kControlFd)};
  const auto progress = std::make_shared<const ProgressPage>(ProgressPage::attach(UniqueFd(kProgressFd)));
  run_rank(control, progress, {.measure = measure});
  return 0;
}

}  // namespace coprime
