// A time, and what it is made of: how much of it was spent on what along the chain of operations that led to it. A
// moment is only ever made by waiting for the later of two and by adding a duration, so its parts add up to its time:
// the critical path, carried along instead of searched for.
#pragma once

#include <array>
#include <string_view>

#include "sim/chip.h"

namespace coprime::sim {

enum class Part : uint8_t {
  kIssue,       // the CPU issues
  kHbm,         // bytes cross the HBM port
  kHbmLatency,  // of the last request, or of earlier ones while no more may be in flight
  kGemm,        // fill and sub-tiles
  kDrain,
  kMath,
  kLink,  // bytes cross a link, or wait for others to
  kHop,   // hop latencies, of messages and of credits
};
inline constexpr size_t kParts = 8;
inline constexpr std::array<std::string_view, kParts> kPartNames = {"issue", "hbm",  "hbm_latency", "gemm",
                                                                    "drain", "math", "link",        "hop"};

struct Moment {
  Tick time = 0;
  uint32_t op = 0;  // the operation that ended here; 0: the launch
  std::array<Tick, kParts> by = {};

  void add(Part part, Tick ticks) {
    time += ticks;
    by[static_cast<size_t>(part)] += ticks;
  }
  // The later of the two; of equal ones, this.
  void wait(const Moment& other) {
    if (other.time > time) *this = other;
  }
};

inline const Moment& later(const Moment& a, const Moment& b) { return b.time > a.time ? b : a; }

}  // namespace coprime::sim
