// All-reduce in two steps over the push protocol: each rank sums a part of the vector, its shard, and pushes the sum to
// all. The bits are those of push.cuh: a sum is made once, in rank order, and rounded once.
//
// A slot holds the sender's share of the receiver's shard from 0, and behind it the sender's sums. A sum is never the
// empty word, since what is no number has one pattern. Why two halves suffice here, too: a call ends only when all
// shards' sums are there, and each needs every rank's words of that call.
#pragma once

#include "collective/cuda/push.cuh"

namespace coprime {

template <class Type>
__global__ void __launch_bounds__(256)
    two_shot_kernel(const __grid_constant__ GpuWorld world, const uint4* in, uint4* out, int64_t words) {
  constexpr int kMost = kMaxGpuRanks;
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  const int64_t shard = (words + world.world - 1) / world.world, own_first = world.rank * shard;
  const Launch launch = begin_launch(world);
  if (launch.aborted) return end_aborted(world, launch.call);
  const int half = half_of<PushVariant::kShipped>(launch.call);
  for (int64_t i = first; i < shard; i += step) {
#pragma unroll
    for (int owner = 0; owner < kMost; ++owner) {
      const int64_t word = owner * shard + i;
      if (owner < world.world && owner != world.rank && word < words)
        ptx::store_relaxed_system(slot_words(world, half, world.rank, owner) + i, sent_words(in[word]));
    }
  }
  count_launch(world, launch.call);

  Patience patience(world, launch.call);
  for (int64_t i = first; i < shard && own_first + i < words; i += step) {
    Terms<kMost> terms;
    if (!collect<kMost>(world, half, i, in[own_first + i], patience, terms)) return count_bail_out(world, launch.call);
    const uint4 sum = sum_in_rank_order<Type, kMost>(terms, world.world);
    push_to_all<kMost>(world, half, shard + i, sum);
    out[own_first + i] = sum;
  }
  for (int64_t i = first; i < shard; i += step) {
    for (int owner = 0; owner < world.world; ++owner) {
      const int64_t word = owner * shard + i;
      if (owner == world.rank || word >= words) continue;
      uint4* const place = slot_words(world, half, owner, world.rank) + shard + i;
      uint4 sum;
      while (has_empty(sum = ptx::load_relaxed_system(place))) {
        if (!patience.wait_on(owner, static_cast<uint64_t>(shard + i))) return count_bail_out(world, launch.call);
      }
      ptx::store_relaxed_system(place, empty_words());
      out[word] = sum;
    }
  }
}

}  // namespace coprime
