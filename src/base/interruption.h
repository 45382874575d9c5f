// Ctrl-C and the like while there is something to take away first: they wait until this object is gone, and end the
// process then, as ever. Of the thread that makes it, and of those that it starts afterwards.
#pragma once

#include <csignal>

namespace coprime {

class Interruption {
 public:
  Interruption();
  Interruption(const Interruption&) = delete;
  ~Interruption();

  // Error(kInternal) once SIGINT, SIGTERM or SIGHUP has come. One that the process was told to ignore stays ignored.
  void check() const;

 private:
  sigset_t held_{}, before_{};
};

}  // namespace coprime
