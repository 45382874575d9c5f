// What the processes of one mpirun or srun can tell each other before any knows another's address: by PMIx, where the
// launcher serves it. libpmix is loaded at run time; a build without its header has pmix_stub.cpp in place of this
// folder, and no process is ever in a job.
#pragma once

#include <memory>
#include <string>

#include "cli/launched.h"

namespace coprime {

class PmixJob {
 public:
  // Null where there is none: no PMIx in the variables, no library, or no server that answers.
  static std::unique_ptr<PmixJob> join(const Variable& variable, const std::string& library = "libpmix.so.2");

  // Leaves the job, if it is still in it. Rank 0 that has given nothing gives an empty text first: the others wait for
  // one.
  virtual ~PmixJob() = default;

  // Once, by all: rank 0 gives a text, the others take it. Returns when all have come, and has left the job then: for
  // the launcher a process that dies in its job is its own affair, and not the front's. Error(kLink) where that takes
  // longer than the time or the server refuses.
  virtual void give(const std::string& text, int timeout_s) = 0;
  virtual std::string take(int timeout_s) = 0;
};

}  // namespace coprime
