// What a PE did, for reports and invariants.
#pragma once

#include <algorithm>
#include <array>

#include "sim/chip.h"
#include "tl/command.h"

namespace coprime::sim {

struct Totals {
  std::array<uint64_t, tl::kOps> issued = {};
  Tick issue = 0, math = 0, gemm = 0, dma = 0;  // busy
  Tick forwarded = 0;                           // of its time, in iterations that were accounted for at once
  uint64_t hbm_read = 0, hbm_written = 0, macs = 0, math_lanes = 0;
  uint64_t fetches = 0, subtiles = 0;

  bool operator==(const Totals&) const = default;

  // combine(a, b) for each field, into this.
  template <class Combine>
  void combine(const Totals& other, const Combine& with) {
    for (size_t op = 0; op < issued.size(); ++op) issued[op] = with(issued[op], other.issued[op]);
    issue = with(issue, other.issue), math = with(math, other.math), gemm = with(gemm, other.gemm);
    dma = with(dma, other.dma), forwarded = with(forwarded, other.forwarded);
    hbm_read = with(hbm_read, other.hbm_read), hbm_written = with(hbm_written, other.hbm_written);
    macs = with(macs, other.macs), math_lanes = with(math_lanes, other.math_lanes);
    fetches = with(fetches, other.fetches), subtiles = with(subtiles, other.subtiles);
  }
};

inline constexpr auto kAdd = [](uint64_t a, uint64_t b) { return a + b; };
inline constexpr auto kLargest = [](uint64_t a, uint64_t b) { return std::max(a, b); };

}  // namespace coprime::sim
