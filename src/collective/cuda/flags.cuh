// All-reduces whose data may be any bits: blocks of the vector, each with a flag that says in which call it came.
//
// A sender's threads store their words of a block; after the block's barrier one thread a peer makes a fence and stores
// the call's number in the flag. A receiver's thread a peer loads the flag with acquire order until it is this call's
// number, and the barrier hands that on to the others. Both the flags and the slots have two halves: a flag of call k
// is overwritten in call k + 2 at the earliest, which its sender begins after it has read this rank's words of call k +
// 1, and those were sent after this rank's call k had ended. A flag says one call and no other, so the number may wrap
// around; a number that comes back finds an old flag only where a block was not used in 2^32 calls.
//
// What the push protocol uses of a slot is left empty again.
#pragma once

#include "collective/all_reduce/push_protocol.h"
#include "collective/cuda/launch.cuh"
#include "collective/cuda/push.cuh"

namespace coprime {

__device__ inline uint32_t* flag_of(const GpuWorld& world, int half, int sender, int receiver, int64_t block) {
  return reinterpret_cast<uint32_t*>(world.slabs[receiver] +
                                     world.layout.flag(half, sender_index(sender, receiver), block));
}

// Paces a block's pushes so that the whole grid keeps below the throttle.
class Throttle {
 public:
  __device__ explicit Throttle(const GpuWorld& world) : gb_s_(world.throttle_gb_s) {
    if (gb_s_ > 0) begin_ns_ = ptx::clock_ns();
  }
  // By one thread, after so many bytes more.
  __device__ void pushed(int64_t bytes) {
    if (gb_s_ <= 0) return;
    bytes_ += bytes;
    const auto least_ns = static_cast<uint64_t>(static_cast<float>(bytes_ * gridDim.x) / gb_s_);
    while (ptx::clock_ns() - begin_ns_ < least_ns) __nanosleep(200);
  }

 private:
  float gb_s_;
  uint64_t begin_ns_ = 0;
  int64_t bytes_ = 0;
};

// By all threads, after their stores of a block.
__device__ inline void raise_flags(const GpuWorld& world, const Launch& launch, int64_t block) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= world.world || peer == world.rank) return;
  ptx::fence_system();
  ptx::store_release_system(flag_of(world, launch.call & 1, world.rank, peer, block), launch.call);
}

// By all threads: true when every peer's words of the block are there, false when this rank gave up.
__device__ inline bool await_flags(const GpuWorld& world, const Launch& launch, int64_t block, Patience& patience) {
  const int peer = static_cast<int>(threadIdx.x);
  bool given_up = false;
  if (peer < world.world && peer != world.rank) {
    const uint32_t* const flag = flag_of(world, launch.call & 1, peer, world.rank, block);
    while (ptx::load_acquire_system(flag) != launch.call) {
      if (!patience.wait_on(peer, static_cast<uint64_t>(block))) {
        given_up = true;
        break;
      }
    }
  }
  return __syncthreads_or(given_up) == 0;
}

// Runs push(block) for a thread block's blocks, and fold(block) one behind it.
template <class Push, class Fold>
__device__ inline void run_blocks(const GpuWorld& world, int64_t blocks, int64_t wire_bytes, const Push& push,
                                  const Fold& fold) {
  const Launch launch = begin_launch(world);
  if (launch.aborted) return end_aborted(world, launch.call);
  const int half = static_cast<int>(launch.call & 1);
  count_launch(world, launch.call);
  Patience patience(world, launch.call);
  Throttle throttle(world);
  for (int64_t block = blockIdx.x; block < blocks + gridDim.x; block += gridDim.x) {
    if (block < blocks) {
      push(half, block);
      if (threadIdx.x == 0) throttle.pushed(wire_bytes * (world.world - 1));
      raise_flags(world, launch, block);
    }
    const int64_t arrived = block - gridDim.x;
    if (arrived < 0) continue;
    if (!await_flags(world, launch, arrived, patience)) {
      if (threadIdx.x == 0) count_bail_out(world, launch.call);
      return;
    }
    fold(half, arrived);
  }
}

template <class Type>
__global__ void __launch_bounds__(512)
    flags_kernel(const __grid_constant__ GpuWorld world, const uint4* in, uint4* out, int64_t words) {
  constexpr int kMost = kMaxGpuRanks;
  constexpr int64_t kBlockWords = kFlagBlockBytes / 16;
  const auto end_of = [&](int64_t block) { return min((block + 1) * kBlockWords, words); };
  const auto push = [&](int half, int64_t block) {
    for (int64_t word = block * kBlockWords + threadIdx.x; word < end_of(block); word += blockDim.x) {
      const uint4 own = in[word];
#pragma unroll
      for (int peer = 0; peer < kMost; ++peer) {
        if (peer < world.world && peer != world.rank)
          ptx::store_relaxed_system(slot_words(world, half, world.rank, peer) + word, own);
      }
    }
  };
  const auto fold = [&](int half, int64_t block) {
    for (int64_t word = block * kBlockWords + threadIdx.x; word < end_of(block); word += blockDim.x) {
      const uint4 own = in[word];
      Terms<kMost> terms;
#pragma unroll
      for (int rank = 0; rank < kMost; ++rank) {
        terms.of[rank] = own;
        if (rank < world.world && rank != world.rank)
          terms.of[rank] = ptx::load_relaxed_system(slot_words(world, half, rank, world.rank) + word);
      }
      if (word * 16 < world.kept_empty) {
        for (int rank = 0; rank < world.world; ++rank) {
          if (rank != world.rank)
            ptx::store_relaxed_system(slot_words(world, half, rank, world.rank) + word, empty_words());
        }
      }
      out[word] = sum_in_rank_order<Type, kMost>(terms, world.world);
    }
  };
  run_blocks(world, (words + kBlockWords - 1) / kBlockWords, kFlagBlockBytes, push, fold);
}

}  // namespace coprime
