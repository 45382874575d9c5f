// The dispatcher of decode on a simulated chip: which kernel a request gets, and why. The rule is attention/dispatch.h;
// what a reduction takes comes from the closed forms of the chip (sim/reduce_model.h, sim/decode_model.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attention/dispatch.h"
#include "sim/reshard_cost.h"
#include "sim/run.h"

namespace coprime {

// What the present context alone would have asked for, and the price of coming from there to what is chosen.
struct DispatchChange {
  attention::DecodeChoice now;
  sim::ReshardCost reshard;
};

// Another way to run the same request: the rule is the document's, and what is fastest on a chip is another question.
struct DispatchAlternative {
  std::string name;  // "long: ...", "tiles of 64"
  sim::RunSpec spec;
};

struct SimDispatch {
  sim::RunSpec spec;  // to be run: the one asked for, with kernel, CUBEs, PEs and tile as chosen
  attention::DecodeCase request;
  attention::DecodeChoice choice;
  std::optional<DispatchChange> change;
  std::vector<std::string> reasons;               // a sentence each
  std::vector<DispatchAlternative> alternatives;  // of the other layout; in tiles, where it is one shot
};

// spec: a decode, with the CUBEs and PEs that a long context would get. threshold: attention::kLongFrom and its like.
// Error(kUsage) for what cannot be placed.
SimDispatch dispatch_decode(const sim::Chip& chip, const sim::RunSpec& spec, int64_t threshold);

}  // namespace coprime
