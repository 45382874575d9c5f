// The parts that every kernel shares: its call's number, bounded waiting, and how it ends without a sum.
//
// The number of a call lies in the slab and is advanced once a launch, by the last block to say that it has read it: so
// eager launches, graphs and their replays count alike, with any grid. A launch's number is read by all its blocks
// before it is advanced, and the next launch begins after this one has ended.
//
// A wait ends when the words are there, or when the abort word is set, or when the time is over. Who finds the time
// over first on a rank writes the record and sets the abort words of all ranks; the others of that rank just end.
// Nothing is summed by a block that gave up.
#pragma once

#include "collective/cuda/slab.h"
#include "cuda/ptx/clock.cuh"
#include "cuda/ptx/memory.cuh"

namespace coprime {

__device__ inline SlabControl* control_of(const GpuWorld& world, int rank) {
  return reinterpret_cast<SlabControl*>(world.slabs[rank]);
}

struct Launch {
  uint32_t call;
  bool aborted;
};

// By all threads of a block, first.
__device__ inline Launch begin_launch(const GpuWorld& world) {
  __shared__ uint32_t call, abort;
  if (threadIdx.x == 0) {
    const SlabControl* const control = control_of(world, world.rank);
    call = ptx::load_relaxed_system(&control->call);
    abort = ptx::load_relaxed_system(&control->abort);
  }
  __syncthreads();
  return {call, abort != 0};
}

// By all threads of a block, once, any time later; thread 0 pays for it.
__device__ inline void count_launch(const GpuWorld& world, uint32_t call) {
  if (threadIdx.x != 0) return;
  SlabControl* const control = control_of(world, world.rank);
  if (atomicAdd(&control->arrivals, 1) != gridDim.x - 1) return;
  control->arrivals = 0;
  ptx::store_relaxed_system(&control->call, call_after(call));
}

__device__ inline void write_record(const GpuWorld& world, int reporter, int late, uint32_t call, uint64_t word) {
  volatile GpuErrorRecord* const record = world.record;
  record->reporter = reporter;
  record->late = late;
  record->call = call;
  record->word = word;
  __threadfence_system();
  record->state = 1;
}

// This rank ends here because of another's word.
__device__ inline void follow_abort(const GpuWorld& world, uint32_t call) {
  SlabControl* const control = control_of(world, world.rank);
  if (atomicCAS(&control->reported, 0, 1) != 0) return;
  const uint32_t word = ptx::load_relaxed_system(&control->abort);
  write_record(world, abort_reporter(word), abort_late(word), call, 0);
}

// This rank waited for `late` as long as it may.
__device__ inline void give_up(const GpuWorld& world, int late, uint32_t call, uint64_t word) {
  if (atomicCAS(&control_of(world, world.rank)->reported, 0, 1) != 0) return;
  write_record(world, world.rank, late, call, word);
  for (int rank = 0; rank < world.world; ++rank)
    ptx::store_relaxed_system(&control_of(world, rank)->abort, abort_word(world.rank, late));
}

// Once for a launch that ends without a sum, by any thread that does.
__device__ inline void count_bail_out(const GpuWorld& world, uint32_t call) {
  SlabControl* const control = control_of(world, world.rank);
  if (atomicExch(&control->bailed_call, call) != call) atomicAdd(&control->bail_outs, 1);
}

// By all threads of a block whose launch was aborted before it began.
__device__ inline void end_aborted(const GpuWorld& world, uint32_t call) {
  count_launch(world, call);
  if (threadIdx.x != 0) return;
  follow_abort(world, call);
  count_bail_out(world, call);
}

// One thread's patience within a launch.
class Patience {
 public:
  __device__ Patience(const GpuWorld& world, uint32_t call) : world_(world), call_(call) {}

  // After each look in vain for what `late` sends; false when it is over.
  __device__ bool wait_on(int late, uint64_t word) {
    if ((++looks_ & (kLooksBetweenClocks - 1)) != 0) return true;
    if (ptx::load_relaxed_system(&control_of(world_, world_.rank)->abort) != 0) {
      follow_abort(world_, call_);
      return false;
    }
    const uint64_t now = ptx::clock_ns();
    if (end_ns_ == 0) end_ns_ = now + world_.timeout_ns;
    if (now < end_ns_) return true;
    give_up(world_, late, call_, word);
    return false;
  }

 private:
  static constexpr uint32_t kLooksBetweenClocks = 64;
  const GpuWorld& world_;
  const uint32_t call_;
  uint32_t looks_ = 0;
  uint64_t end_ns_ = 0;
};

}  // namespace coprime
