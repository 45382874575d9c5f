#include "cli/launched.h"

#include <charconv>
#include <cstring>

#include "base/error.h"

namespace coprime {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* ranks;
  const char* jobs[2];  // together they name the job; none: the parent does
};
// PMIx as such tells no number of ranks: its launchers set one of these, too.
constexpr Launcher kLaunchers[] = {
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"PMIX_NAMESPACE", nullptr}},
    {"SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
    {"PMI", "PMI_RANK", "PMI_SIZE", {"PMI_JOBID", nullptr}},
};

int number(const char* name, const char* text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end != '\0' || value < 0)
    fail(ErrorKind::kUsage, "{} is \"{}\", expected a number: start with --launcher none to ignore it", name, text);
  return value;
}

}  // namespace

std::optional<LaunchedProcess> launched_process(const Variable& variable, long parent) {
  for (const Launcher& launcher : kLaunchers) {
    const char* rank = variable(launcher.rank);
    const char* ranks = variable(launcher.ranks);
    if (rank == nullptr || ranks == nullptr) continue;
    LaunchedProcess process{number(launcher.rank, rank), number(launcher.ranks, ranks), {}, launcher.name};
    if (process.rank >= process.ranks) {
      fail(ErrorKind::kUsage, "{}={} and {}={}: start with --launcher none to ignore them", launcher.rank, rank,
           launcher.ranks, ranks);
    }
    for (const char* name : launcher.jobs) {
      const char* job = name == nullptr ? nullptr : variable(name);
      if (job != nullptr) process.job += (process.job.empty() ? "" : ".") + std::string(job);
    }
    if (process.job.empty()) process.job = fmt::format("parent {}", parent);
    if (process.ranks > 1) return process;
  }
  return std::nullopt;
}

}  // namespace coprime
