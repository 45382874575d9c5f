// What one rank holds and reads under a split, in counts of the model's units, and what that is in parameters.
#pragma once

#include <cstdint>

#include "plan/model_numbers.h"
#include "plan/plan_format.h"

namespace coprime {

// A rank's part. Units are those of the axes: heads, elements of width, ids. Dummies count where they are held.
struct RankLoad {
  int64_t q_heads = 0, kv_heads = 0;    // whose rows of q, k and v it holds
  int64_t o_heads = 0;                  // whose columns of o_proj it holds
  int64_t key_heads = 0;                // of linear attention, each with its value heads
  int64_t width = 0, expert_width = 0;  // of the dense MLP; of every expert
  int64_t shared_width = 0;             // of the expert that is always active
  int64_t vocab = 0;
  double layers = 1;  // the share of the layers that it has: less than 1 in a pipeline alone
  double tokens = 1;  // the share of the context whose keys and values it keeps

  bool operator==(const RankLoad&) const = default;
};

// The whole model on one rank.
RankLoad whole_load(const ModelNumbers& model);

// Parameters of a load, by part.
struct Parameters {
  double attention = 0, linear = 0, mlp = 0, experts = 0, other = 0;  // other: norms, routers, latents: on every rank
  double embedding = 0, head = 0;
  double all() const { return attention + linear + mlp + experts + other + embedding + head; }
};
Parameters parameters_of(const ModelNumbers& model, const RankLoad& load);

// Of them, what a step of `batch` tokens reads: a row of an embedding that is no head, and the experts that are chosen
// (as many different ones as `batch` random choices meet).
Parameters read_in_step(const ModelNumbers& model, const RankLoad& load, int64_t batch);

double weight_bytes(const Parameters& parameters, const PlanFormat& format);

// Keys and values of one token in all layers, in elements; recurrent and convolution state of a sequence, in floats.
double kv_elements(const ModelNumbers& model, const RankLoad& load);
double state_floats(const ModelNumbers& model, const RankLoad& load);

}  // namespace coprime
