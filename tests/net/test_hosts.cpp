#include "net/test_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <stdexcept>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int kPollUs = 1000;

UniqueFd memory_file(const char* name) {
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC));
  if (!file) throw std::runtime_error(fmt::format("cannot make a file in memory: {}", errno_text(errno)));
  return file;
}

// Between fork and exec: only calls that are safe there.
[[noreturn]] void become(char* const* words, int space, int out, int err, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(126);  // the parent died before the line above
  const int mode = O_WRONLY | O_APPEND;     // where two processes write to one of them, neither overwrites
  if (::setns(space, CLONE_NEWNET) != 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0 || ::fcntl(1, F_SETFL, mode) != 0 ||
      ::fcntl(2, F_SETFL, mode) != 0) {
    ::_exit(126);
  }
  ::execv(words[0], words);
  ::_exit(127);
}

}  // namespace

HostProgram::HostProgram(int space, const std::vector<std::string>& words)
    : out_(memory_file("stdout")), err_(memory_file("stderr")) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error(fmt::format("cannot start {}: {}", words[0], errno_text(errno)));
  if (pid_ == 0) become(argv.data(), space, out_.get(), err_.get(), parent);
}

HostProgram::HostProgram(HostProgram&& other) noexcept
    : out_(std::move(other.out_)),
      err_(std::move(other.err_)),
      pid_(std::exchange(other.pid_, 0)),
      exit_code_(other.exit_code_) {}

HostProgram::~HostProgram() {
  if (pid_ == 0 || exit_code_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void HostProgram::signal(int number) const {
  if (!exit_code_) ::kill(pid_, number);
}

std::optional<int> HostProgram::wait(int timeout_ms) {
  const int64_t end_us = now_us() + int64_t{timeout_ms} * 1000;
  while (!exit_code_) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (now_us() >= end_us) {
      break;
    } else {
      ::usleep(kPollUs);
    }
  }
  return exit_code_;
}

bool HostProgram::says(const std::string& words, int timeout_ms) const {
  const int64_t end_us = now_us() + int64_t{timeout_ms} * 1000;
  for (;;) {
    const bool over = now_us() >= end_us;  // before the look, so that the last look is never too early
    if (out().find(words) != std::string::npos || err().find(words) != std::string::npos) return true;
    if (over) return false;
    ::usleep(kPollUs);
  }
}

std::string HostProgram::text(const UniqueFd& file) {
  std::string all;
  char buffer[4096];
  for (ssize_t got; (got = ::pread(file.get(), buffer, sizeof buffer, static_cast<off_t>(all.size()))) > 0;)
    all.append(buffer, static_cast<size_t>(got));
  return all;
}

TestHosts::TestHosts(int hosts) {
  std::vector<int> cards;
  for (int host = 0; host < hosts; ++host) {
    hosts_.push_back(std::make_unique<HostNamespace>(address(host)));
    cards.push_back(hosts_.back()->card());
  }
  relay_ = std::make_unique<Relay>(std::move(cards));
}

std::string TestHosts::address(int host) const { return fmt::format("10.77.0.{}", host + 1); }

HostProgram TestHosts::start(int host, const std::vector<std::string>& words) const {
  return HostProgram(hosts_[static_cast<size_t>(host)]->fd(), words);
}

void TestHosts::set_cut(int a, int b, bool cut) { relay_->way(a, b).cut = relay_->way(b, a).cut = cut; }

void TestHosts::delay_us(int64_t us) {
  for_each_way([us](Relay::Way& way) { way.delay_us = us; });
}

void TestHosts::loss(double share) {
  for_each_way([share](Relay::Way& way) { way.loss = share; });
}

void TestHosts::for_each_way(const std::function<void(Relay::Way&)>& act) {
  for (int from = 0; from < count(); ++from) {
    for (int to = 0; to < count(); ++to) act(relay_->way(from, to));
  }
}

}  // namespace coprime
