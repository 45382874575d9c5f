// Whether this process is one of many that mpirun or srun started, from the variables that these set. The only place
// that knows them.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace coprime {

struct LaunchedProcess {
  int rank = 0, ranks = 1;
  std::string job;       // the same for all processes of a job on one host, and different between jobs
  std::string launcher;  // "Open MPI", for messages
};

// Nothing for a process that was started alone. A shell in a SLURM allocation is none of its job's tasks: srun's are
// told by a variable of their own.
using Variable = std::function<const char*(const char*)>;  // getenv, or a test's
std::optional<LaunchedProcess> launched_process(const Variable& variable, long parent);

}  // namespace coprime
