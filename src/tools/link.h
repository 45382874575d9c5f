// Gate M for host links: what joins every pair of ranks, on one host or many, what a gate of all of them costs beside
// the bare exchange of the same run, and what follows from it. Measures (measure_links), and tells (link_text,
// link_json); the advice is computed from the figures alone.
//
// A pair's one way is timed by one clock where both ranks run on one host, else it is half of there and back. A gate's
// time is that of the rank that took longest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/link_world.h"

namespace coprime {

struct MeasureOptions {
  std::vector<int64_t> sizes;  // bytes
  int repeat = 500;            // transfers of each sort up to 64 KiB; of larger ones as many as move the same bytes,
                               // five at least
};

// 4, 8, 16, 24, 48, 64 KiB, 1 and 16 MiB.
std::vector<int64_t> default_link_sizes();

struct Figures {  // microseconds
  double p50 = 0, p99 = 0, max = 0;
};
Figures figures_of(const std::vector<int64_t>& nanoseconds);  // zeros of none; the nearest rank

struct PairFigures {  // of one direction
  int from = 0, to = 0;
  int64_t bytes = 0;
  bool one_clock = true;  // else one way is half of there and back
  std::string link;
  Figures one_way, round_trip;
  double push_gb_s = 0;          // a stream this way alone
  double duplex_efficiency = 0;  // both ways at once, over the sum of both alone
};

struct GateFigures {
  int ranks = 0;
  int64_t bytes = 0;
  Figures gate, owners;
  std::optional<double> floor_p50_us;
};

struct LinkFigures {
  int ranks = 0, timeout_ms = 0;
  std::vector<LinkHost> hosts;
  std::vector<std::string> notes;  // on the links: see LinkWorld
  MeasureOptions options;
  std::vector<PairFigures> pairs;  // of trials that went through
  std::vector<GateFigures> gate;
  int64_t transfers = 0, wrong = 0;   // vectors compared, and those that differed
  int timeouts = 0, bail_outs = 0;    // ranks that waited the whole time-out; that ended early for another reason
  std::vector<std::string> failures;  // what they said

  bool good() const { return wrong == 0 && failures.empty(); }
};

LinkFigures measure_links(LinkWorld& world, const MeasureOptions& options);

// What a decode step costs in gates: its schedule's bytes by gate, and the sum of the measured medians.
struct TokenCost {
  int gates = 0;
  double gate_ms = 0;
  double tokens_per_second() const { return gate_ms > 0 ? 1000 / gate_ms : 0; }
};
// Error(kUsage) when a gate's size is not among the figures.
TokenCost token_cost(const LinkFigures& figures, const GateSchedule& schedule);

// One line each; says what was seen, and what to do.
std::vector<std::string> link_advice(const LinkFigures& figures);

std::string link_text(const LinkFigures& figures, const std::optional<TokenCost>& token);
std::string link_json(const LinkFigures& figures, const std::optional<TokenCost>& token);

}  // namespace coprime
