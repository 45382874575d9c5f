// The evaluation of ADR-0060: four panels {single, multi}_user x {prefill, decode} of Llama-3-70B's attention, and its
// gates that compare: with a baseline, or with a count that follows from the algorithm. Absolute times are as good as
// the chip's values.
#pragma once

#include <string>
#include <vector>

#include "sim/run.h"

namespace coprime {

struct MilestoneOptions {
  int64_t context = 1 << 20;  // tokens of decode
  int64_t prompt = 2048;      // tokens of prefill
  int users = 8, layers = 80;
};

// Users of one panel are under way at once, each on a placement of its own, in a fixed order (tl/kernels/requests.h).
struct Panel {
  std::string name;
  sim::RunResult result;  // of all users, and one layer
  int users = 1;
  sim::Tick one_by_one = 0;  // what the users would take one after another
};

struct Verdict {
  std::string gate, expected, found;
  bool holds = false;
};

struct Milestone {
  std::vector<Panel> panels;
  std::vector<Verdict> verdicts;
  int layers = 1;
};

// All layers have one shape: of each panel two are simulated, one after the other, and compared; the rest are taken to
// be the same. progress: as of sim::Machine.
Milestone run_milestone(const sim::Chip& chip, const MilestoneOptions& options,
                        const sim::Machine::Progress& progress = {});
std::string milestone_table(const Milestone& milestone);

}  // namespace coprime
