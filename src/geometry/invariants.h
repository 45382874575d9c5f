// What must hold of every plan, asserted when it is made. A broken one would not crash: it would answer wrongly.
#pragma once

#include <span>
#include <string_view>

#include "geometry/shard_plan.h"

namespace coprime {

// Of the global counts: query heads per KV head as trained (q head h reads KV head h / GQA), value heads per key head
// as trained, no count below stock, MLP and vocabulary in whole units, and stock where the rank count divides already.
void check_counts(const ModelShape& shape, const PlanOptions& options, const Counts& padded);

// Of one axis's shares in rank order: each lies in its extent, spans ascend, and every one of `real` elements is held
// by exactly `copies` ranks, in rank order (dummies can only stand behind the last real one). Where a share is
// `uniform`, all extents are equal.
void check_shares(std::string_view axis, std::span<const AxisMap> shares, int64_t real, int copies, bool uniform);

// Of one rank: every real query head finds the KV head that it was trained with at the local place where it looks for
// it.
void check_heads(const ModelShape& shape, const Counts& local, const AxisMap& queries, const AxisMap& kv);

// All of these, of a plan.
void check_invariants(const ShardPlan& plan);

}  // namespace coprime
