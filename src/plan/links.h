// What joins ranks, and what a gate over it costs.
//
// A gate: every rank sends its vector to every other, all at once, each by its own port (spec of the exchange:
// collective/communicator.h). So it takes one way of the link, and the time in which a port passes (ranks - 1) vectors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coprime {

struct GatePoint {
  int64_t bytes = 0;
  double us = 0;
  bool operator==(const GatePoint&) const = default;
};

struct LinkNumbers {
  std::string name, title;
  double latency_us = 0;  // of a gate of few bytes, one way with both ends' software
  double gb_s = 0;        // of a port, each way
  std::string source;     // where the figures come from
  bool operator==(const LinkNumbers&) const = default;
};

// By name: 1g, 10g, 25g, 100g (TCP), 100g-rdma, pcie5x4, pcie5x8, nvlink, shm.
std::span<const LinkNumbers> typical_links();
const LinkNumbers* find_link(std::string_view name);  // null: none

// Microseconds.
double gate_us(const LinkNumbers& link, int64_t ranks, double bytes);

// A link that fits measured gates of `ranks` ranks best at its ends: the smallest gives the latency, the largest the
// bandwidth. Needs one point.
LinkNumbers fit_link(std::span<const GatePoint> points, int64_t ranks);

// Of measured gates: between two sizes on the line through them, beyond the last along its link.
double interpolate_us(std::span<const GatePoint> points, double bytes);

}  // namespace coprime
