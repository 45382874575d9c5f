// The machines that ranks run on, as the planner needs them: how fast each host reads and multiplies, what a layer
// costs beside its matrices, and what joins the ranks. A machine is a typical one by name, or comes from a file
// (machine_file.h) that `coprime probe`, `coprime link --json` or a person wrote.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plan/links.h"

namespace coprime {

// `threads` of a host together, over `bytes` in all that lie in memory as weights do.
struct ReadFigure {
  int64_t threads = 1, bytes = 0;
  double gb_s = 0;
  bool operator==(const ReadFigure&) const = default;
};

// Products of one row with weights of a format, "BF16", "Q4_1", ...: bytes of weights a second.
struct ProductFigure {
  std::string format;
  int64_t threads = 1, bytes = 0;
  double gb_s = 0;
  bool operator==(const ProductFigure&) const = default;
};

// What a layer's other operations and the meeting of the threads cost, beside reading weights; of one rank.
struct LayerFigure {
  int64_t threads = 1;
  double attention_us = 0, linear_us = 0;
  bool operator==(const LayerFigure&) const = default;
};

struct MachineHost {
  std::string name;
  std::vector<int> ranks;        // empty: as many as are asked for
  int64_t cores = 1;             // 0: unknown
  int64_t memory_bytes = 0;      // for all its ranks; 0: unknown
  double gflops = 0;             // of f32 products, all cores; 0: unknown
  double front_us = 0;           // of a step, beside its ranks' work: messages and sampling
  std::vector<ReadFigure> read;  // one at least
  std::vector<ProductFigure> products;
  std::vector<ReadFigure> attention;  // keys and values, in f32, of a row of queries
  std::vector<ReadFigure> states;     // recurrent states that a step reads and writes, so many bytes of both
  std::vector<LayerFigure> layers;
  bool operator==(const MachineHost&) const = default;
};

// Gates that were measured among `ranks` ranks, by rising bytes.
struct MeasuredGates {
  std::string link;
  int64_t ranks = 2;
  std::vector<GatePoint> points;
  bool operator==(const MeasuredGates&) const = default;
};

// What joins two ranks.
struct PairLink {
  int from = 0, to = 0;
  LinkNumbers link;
  bool operator==(const PairLink&) const = default;
};

struct Machine {
  std::string name;    // of the table, or the file's path
  std::string source;  // "a typical one: 2 channels of DDR5-5600"
  bool measured = false;
  std::vector<MachineHost> hosts;
  bool repeats = false;  // the one host stands for as many as there are ranks
  // Of all pairs that `pairs` does not name. None: shm between ranks of one host, 10g between others.
  std::optional<LinkNumbers> link;
  std::vector<PairLink> pairs;
  std::vector<MeasuredGates> gates;
  std::vector<double> shares;  // of the ranks, for unequal ones; empty: by their speed
};

std::span<const Machine> typical_machines();
const Machine* find_machine(std::string_view name);  // null: none

// Where each of `ranks` ranks runs: index of its host. Error(kUsage) when the machine has places for fewer.
std::vector<size_t> place_ranks(const Machine& machine, int64_t ranks);
bool on_one_host(const Machine& machine, std::span<const size_t> placement);

// Error(kUsage) for a link of a rank that is neither among `ranks` nor on a host, and for shares of another count.
void check_ranks(const Machine& machine, int64_t ranks);

// Of one rank, of `on_host` that share its host and its cores evenly; `bytes` are what it reads in a step.
struct RankSpeed {
  const MachineHost* host = nullptr;
  int64_t on_host = 1, threads = 1;
  double read_gb_s(double bytes) const;
  double attention_gb_s(double bytes) const;
  double state_gb_s(double bytes) const;                             // of the plain read where nothing was measured
  double product_gb_s(std::string_view format, double bytes) const;  // likewise
  LayerFigure layer() const;
};
RankSpeed rank_speed(const Machine& machine, std::span<const size_t> placement, size_t rank);

// The gates from which those of `ranks` ranks are told: measured among as many, or else among the nearest count; of
// several links the first. Null: nothing was measured, or each pair's link is known and not a gate of so many.
const MeasuredGates* gates_for(const Machine& machine, int64_t ranks);

// Two ranks of whose link nothing is known, if there are any.
std::optional<std::pair<int, int>> pair_without_link(const Machine& machine, int64_t ranks);

// A gate of all `ranks`, as slow as its slowest port. A gate of n ranks does n - 1 exchanges: one that was measured
// among m of them counts (n - 1) / (m - 1) times.
double machine_gate_us(const Machine& machine, std::span<const size_t> placement, double bytes);
// What the slowest pair is joined by, in words; "nothing" of one rank.
std::string machine_link_name(const Machine& machine, std::span<const size_t> placement);

}  // namespace coprime
