// `coprime plan`: what a split of a model over ranks holds, moves and costs, before there is any hardware. Pure: plain
// numbers in, plain numbers out. What kernels, slots and scratch need comes as numbers, too.
#pragma once

#include <optional>
#include <vector>

#include "plan/machine.h"
#include "plan/other_engines.h"
#include "plan/splits.h"

namespace coprime {

// What a rank's packed weights take, where it is known exactly (from the headers of a checkpoint): all of them, and
// those that a step reads.
struct RankWeights {
  int64_t bytes = 0, step_bytes = 0;
};

struct DrafterInput {
  ModelNumbers model;
  PlanFormat format;
};

struct PlanInput {
  ModelNumbers model;
  PlanFormat format;
  std::string format_source;  // "of the config", "--format", "of the headers"
  Machine machine;
  int64_t ranks = 1, pad_for = 1, context = 4096, batch = 1;
  int64_t memory_bytes = 0;  // a rank's; 0: the machine's, if it is known
  bool exact = false;
  double kv_bytes = 4;               // of an element of keys and values
  std::vector<RankWeights> weights;  // by rank, of the padded split; empty: counted from the shape
  int64_t step_rows = 256;           // of one step at most: what slots and activations are made for
  int64_t state_slots = 1;           // of a sequence's recurrent state
  int64_t window_slots = 2;          // of a gate, a rank's own
  int64_t incoming_slots = 2;        // for each peer, where memory is not shared
  std::optional<DrafterInput> drafter;
};

struct StepTime {  // milliseconds of a step of decode on the slowest rank
  double weights = 0, kv = 0, state = 0, gates = 0, layers = 0, front = 0;
  double total() const { return weights + kv + state + gates + layers + front; }
};

struct RankMemory {  // bytes
  double weights = 0, step_weights = 0;
  double kv_per_token = 0, state = 0;  // of one sequence
  double gate_slots = 0, scratch = 0, activations = 0;
  double fixed() const { return weights + gate_slots + scratch + activations; }
};

struct SplitPlan {
  Split split;
  std::vector<RankMemory> ranks;
  StepTime step;
  double gate_bytes = 0;  // that a rank sends to each peer, a step
  int64_t gates = 0;      // a step
  double gate_share = 0;  // of the ranks' time in a step, the mean of them: exchanges, and waiting for the slowest
  double prompt_s = 0;    // for a prompt as long as the context; 0: no host says how fast it multiplies
};

struct LinkCost {
  LinkNumbers link;
  double gate_us = 0, gates_ms = 0, step_ms = 0;
};

struct RankCountRow {
  int64_t ranks = 0;
  StepTime step;
  Refusals refusals;
  bool strict_refuses = false, placed = true;  // not placed: the machine has no host for it
  double busiest_bytes = 0;                    // of weights
};

struct DrafterPlan {
  ModelNumbers model;
  PlanFormat format;
  PaddedCounts stock, padded;
  bool shares_cache = false;  // its KV bytes a token equal the target's
  double bytes = 0;           // of weights, on the busiest rank
};

struct Plan {
  PlanInput input;
  PaddedCounts stock, padded;
  std::vector<SplitPlan> splits;                                        // all that all_splits() gives
  size_t chosen = 0;                                                    // the one that is described: pad, or exact
  size_t cheapest = 0;                                                  // of those that fit, by ms a token
  Parameters parameters;                                                // stock
  double padded_parameters = 0, busiest_overhead = 0, kv_overhead = 0;  // the two overheads as shares
  std::string joined_by;                                                // what joins the slowest pair
  std::vector<LinkCost> links;
  std::vector<RankCountRow> rank_counts;  // 1 to 8
  int64_t longest_context = -1;           // that fits; -1: memory unknown, or no limit below the model's
  int64_t longest_of_one = -1;            // likewise, of one sequence alone
  double memory_bytes = 0;                // of the rank with the least; 0: unknown
  std::optional<DrafterPlan> drafter;
  std::vector<std::string> verdict;  // lines

  const SplitPlan& main() const { return splits[chosen]; }
};

// Error(kUsage) for a rank that the machine has no host for.
Plan make_plan(PlanInput input);

}  // namespace coprime
