// What a tile of decode takes in the steady state, in closed form: DMA, matrix engine, MATH and CPU as if each did its
// part of a tile in one piece. A bound where they overlap more finely (the event core lets them), exact where one piece
// is all there is: decode_model_test.cpp names that setting. spec A3.
#pragma once

#include "sim/run.h"

namespace coprime::sim {

struct TilePeriod {
  Tick dma_k = 0, dma_v = 0, gemm_qk = 0, gemm_pv = 0;  // of one whole tile of the run's `tile` keys
  Tick first_fetch = 0, later_fetches = 0;              // of dma_k: until the first sub-tile is there, from then on
                                                        // (limits on reads in flight and stages are in all of these)
  Tick softmax = 0, update = 0;                         // MATH: nine operations; O e + U
  Tick issue = 0;                                       // CPU

  // With T1 = first_fetch + max(later_fetches, gemm_qk), T2 likewise with gemm_pv, Ts = softmax, Ta = update:
  // opt1: T1 + Ts + T2 + Ta; opt3: max(T1, Ts) + T2 + Ta; of Ta, the half that scales O needs no product and runs
  // beside it (A3 puts all of Ta behind T2). opt3v brings V ahead: T2 is gemm_pv, and both transfers bound the whole.
  // opt2: the busiest of DMA, GEMM, MATH. None is faster than its CPU.
  Tick ticks(tl::DecodeVariant variant) const;
};
TilePeriod tile_period(const Chip& chip, const RunSpec& spec);

// A whole decode: the sweep of the rank with the most keys at that period, the reduction by reduce_model.h, what comes
// before and after. An estimate to be drawn beside what is simulated.
Tick decode_estimate(const Chip& chip, const RunSpec& spec);

}  // namespace coprime::sim
