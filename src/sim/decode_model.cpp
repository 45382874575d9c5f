#include "sim/decode_model.h"

#include <algorithm>

#include "attention/cube_groups.h"
#include "attention/kv_placement.h"
#include "sim/reduce_model.h"

namespace coprime::sim {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

Tick cycles(const Chip& chip, int64_t count) { return static_cast<Tick>(count * chip.pe.ps_per_cycle); }

Tick transfer(const Chip& chip, int64_t bytes) {
  return static_cast<Tick>(ceil_div(bytes * 1000, chip.pe.dma.hbm_gb_s));
}

Tick math(const Chip& chip, int64_t elements, int64_t cost = 1) {
  return cycles(chip, chip.pe.math.fill_cycles + ceil_div(elements * cost, chip.pe.math.lanes));
}

// [rows x k] times [k x n].
Tick gemm(const Chip& chip, int64_t rows, int64_t k, int64_t n) {
  const GemmUnit& unit = chip.pe.gemm;
  const int64_t subtiles = ceil_div(rows, unit.tile_m) * ceil_div(k, unit.tile_k) * ceil_div(n, unit.tile_n);
  return cycles(chip, unit.fill_cycles + subtiles * unit.subtile_cycles + unit.drain_cycles);
}

// Bytes that come in pieces of `piece` bytes, one after another: at the rate of HBM, or slower where too few requests
// are in flight, or too few stages free, to cover the latency. use: for how long a piece keeps its stage once it is
// there. stages: 0 for none.
struct Fetches {
  Tick first = 0;   // until the first piece is there
  Tick period = 0;  // from one piece to the next

  Fetches(const Chip& chip, int64_t piece, int64_t stages, Tick use) {
    const DmaUnit& dma = chip.pe.dma;
    const int64_t request = std::min(piece, dma.request_bytes), requests = ceil_div(piece, request);
    const Tick latency = static_cast<Tick>(dma.latency_ps), whole = transfer(chip, piece);
    const Tick turn = transfer(chip, request) + latency;  // of a request, until another may take its place
    const auto depth = static_cast<Tick>(dma.reads_in_flight);
    first = std::max(latency + whole, turn * static_cast<Tick>(ceil_div(requests, dma.reads_in_flight)));
    period = std::max(whole, turn * static_cast<Tick>(requests) / depth);
    if (stages > 0) period = std::max(period, (first + use) / static_cast<Tick>(stages));
  }
};

}  // namespace

Tick TilePeriod::ticks(tl::DecodeVariant variant) const {
  const Tick first = first_fetch + std::max(later_fetches, gemm_qk),
             second = first_fetch + std::max(later_fetches, gemm_pv), scale = update / 2;
  const auto behind = [&](Tick product) { return std::max(product, scale) + update - scale; };
  Tick ticks = 0;
  switch (variant) {
    case tl::DecodeVariant::kOpt1:
      ticks = first + softmax + behind(second);
      break;
    case tl::DecodeVariant::kOpt3:
      ticks = std::max(first, softmax) + behind(second);
      break;
    case tl::DecodeVariant::kOpt3v:
      ticks = std::max(std::max(first, softmax) + behind(gemm_pv), dma_k + dma_v);
      break;
    case tl::DecodeVariant::kOpt2:
      ticks = std::max({dma_k + dma_v, gemm_qk + gemm_pv, softmax + update});
      break;
  }
  return std::max(ticks, issue);
}

TilePeriod tile_period(const Chip& chip, const RunSpec& spec) {
  const int64_t g = spec.rows, d = spec.d, t = spec.tile, exp = chip.pe.math.exp_cost;
  const IssueCycles& issue = chip.pe.issue;
  TilePeriod period;
  const int64_t piece =
      2 * std::min(chip.pe.gemm.tile_k, std::min(t, d)) * std::min(chip.pe.gemm.tile_n, std::min(t, d));
  const bool fused = spec.variant == tl::DecodeVariant::kOpt2, ahead = spec.variant == tl::DecodeVariant::kOpt3v;
  const int64_t stages = chip.pe.dma.stages * (fused ? 2 : 1);  // opt2's K and V have stages of their own
  const Fetches fetches(chip, piece, stages,
                        cycles(chip, ceil_div(g, chip.pe.gemm.tile_m) * chip.pe.gemm.subtile_cycles));
  const auto pieces = [&](const Fetches& of, int64_t bytes) {
    return std::max(transfer(chip, 2 * t * d), of.period * static_cast<Tick>(ceil_div(2 * t * d, bytes)));
  };
  period.dma_k = pieces(fetches, piece);
  const int64_t request = chip.pe.dma.request_bytes;
  period.dma_v = ahead ? pieces(Fetches(chip, request, 0, 0), request) : period.dma_k;
  period.first_fetch = fetches.first;
  period.later_fetches = period.dma_k - std::min(fetches.period, period.dma_k);
  period.gemm_qk = gemm(chip, g, d, t);
  period.gemm_pv = gemm(chip, g, t, d);
  period.softmax = 3 * math(chip, g * t) + math(chip, g * t, exp) + math(chip, g, exp) + 4 * math(chip, g);
  period.update = 2 * math(chip, g * d);
  period.issue = cycles(chip, fused ? issue.composite + issue.ex_composite
                                    : 2 * issue.composite + 11 * issue.math + (ahead ? issue.load : 0));
  return period;
}

Tick decode_estimate(const Chip& chip, const RunSpec& spec) {
  const attention::Mesh sip{static_cast<int>(chip.cube_rows), static_cast<int>(chip.cube_columns)};
  const attention::Mesh group = attention::cube_groups(sip, spec.cubes).group;
  const int64_t largest = spec.largest_context > 0 ? spec.largest_context : spec.context;
  const auto placement = attention::kv_placement(largest, spec.cubes, spec.pes);
  const Tick sweep =
      static_cast<Tick>(placement.tiles(0, spec.context, spec.tile)) * tile_period(chip, spec).ticks(spec.variant);
  const int64_t query = 2 * spec.rows * spec.d;
  const Tick move = transfer(chip, query) + static_cast<Tick>(chip.pe.dma.latency_ps);
  const Tick before = cycles(chip, chip.pe.issue.load) + move;
  const Tick after = cycles(chip, chip.pe.issue.math + chip.pe.issue.store) + math(chip, spec.rows * spec.d) + move;
  const auto reduce = attention::two_level_reduce(attention::pe_mesh(spec.pes), spec.within, group, spec.across);
  return before + sweep + reduce_cost(chip, reduce, spec.rows, spec.d) + after;
}

}  // namespace coprime::sim
