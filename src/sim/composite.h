// A GEMM under way, step by step, and the queue of those that share the stages of a stream from HBM.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/context.h"
#include "sim/ring.h"

namespace coprime::sim {

struct Composite {
  Moment seen, a_ready;
  uint32_t op = 0;
  uint32_t number = 0;  // of issue
  int64_t k = 0, n = 0;
  int32_t k_tiles = 0, steps = 0;
  int32_t element_bytes = 2;
  bool streamed = false;  // B comes from HBM
  bool ready = true;      // A is there (softmax_pv: when its softmax step has ended)
  bool of_softmax_pv = false;
  uint16_t line = 0;
  int32_t fetched = 0, ended = 0;  // steps
  Tick step_ticks = 0, start = 0;
  Cause cause = Cause::kNone;  // of its first step
  uint32_t cause_op = 0;
  uint64_t macs = 0;

  int64_t step_bytes(const GemmUnit& gemm, int32_t step) const {
    const int64_t at_k = step % k_tiles * gemm.tile_k, at_n = step / k_tiles * gemm.tile_n;
    return std::min(gemm.tile_k, k - at_k) * std::min(gemm.tile_n, n - at_n) * element_bytes;
  }
};

// Composites in the order of issue. Fetches run ahead of steps by at most the stages.
struct Stream {
  explicit Stream(const Chip& chip) : stages(static_cast<size_t>(chip.pe.dma.stages)) {}

  Ring<Composite> queue;                            // issued, last step not yet ended
  size_t fetching = 0;                              // of the queue: the first with steps to fetch
  std::vector<Moment> stages;                       // when each stage's tile is there
  uint32_t fetched = 0, arrived = 0, consumed = 0;  // fetched steps
  Moment stage_free;                                // the end of the fetched step that ended last

  Composite* next_to_fetch() {
    while (fetching < queue.size()) {
      Composite& composite = queue[fetching];
      if (composite.streamed && composite.fetched < composite.steps) return &composite;
      ++fetching;
    }
    return nullptr;
  }
  bool stage_available() const { return fetched - consumed < stages.size(); }
  // Whether the step that `fetched` counts next waits for the very stage that was freed last.
  bool stage_bound() const { return fetched >= stages.size() && consumed + stages.size() == fetched + 1; }
  Moment& stage(uint32_t step) { return stages[step % stages.size()]; }
  // Whether the first composite's next step has what it needs, but for `seen`.
  bool step_ready() {
    if (queue.empty()) return false;
    const Composite& composite = queue.front();
    return composite.ready && (!composite.streamed || arrived > consumed);
  }
  void pop() {
    queue.pop();
    if (fetching > 0) --fetching;
  }
};

}  // namespace coprime::sim
