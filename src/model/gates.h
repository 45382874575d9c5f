// The gates of a decoder's step, and the projection back to the hidden size that stands before each of them.
//
// Partial form: o_proj, out_proj and down_proj are cut by columns; each rank's product is a partial sum, added at the
// gate. Exact form: they are cut by rows; the inputs are gathered, each rank computes its outputs over the whole K, the
// outputs are gathered. No sum crosses ranks, so a row's bits do not depend on how many ranks there are.
#pragma once

#include <vector>

#include "collective/communicator.h"
#include "geometry/shard_plan.h"

namespace coprime {

// Entry 0 is the embedding; then each layer has its gates: ATTN and FFN, or in exact mode two each.
GateSchedule make_decode_schedule(const ShardPlan& plan, int max_rows);

// The columns that each rank contributes to a gathered row, from the plan's spans.
std::vector<GatherPart> gather_parts(const ShardPlan& plan, Span (ShardPlan::*span)(int) const);

// One of the two projections of a layer.
class OutputProjection {
 public:
  // `inputs`: which columns of the projection's input each rank computes, for the gather of exact mode.
  OutputProjection(const ShardPlan& plan, bool attention, int layer, std::vector<GatherPart> inputs);

  // Where the block writes its activations: `columns` of them a row (this rank's, dummies included where they are
  // held).
  View input(Communicator& communicator, View scratch, int rows, int64_t columns) const;

  // residual += W input, over all ranks; then the epilogue's norm. Exact mode gathers the whole input in `gathered` and
  // the outputs in `sum`.
  void run(Device& device, Communicator& communicator, const Weight& weight, View input, View gathered, View sum,
           const Epilogue& epilogue) const;

 private:
  bool exact_;
  int first_entry_;
  std::vector<GatherPart> inputs_, outputs_;
};

}  // namespace coprime
