#include "base/interruption.h"

#include "base/error.h"

namespace coprime {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

}  // namespace

Interruption::Interruption() {
  sigemptyset(&held_);
  for (const int signal : kSignals) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&held_, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

Interruption::~Interruption() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

void Interruption::check() const {
  sigset_t come;
  sigpending(&come);
  for (const int signal : kSignals)
    if (sigismember(&come, signal) == 1 && sigismember(&held_, signal) == 1) fail(ErrorKind::kInternal, "interrupted");
}

}  // namespace coprime
