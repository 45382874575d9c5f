// All-reduce in which data is its own flag (push_protocol.h): every rank pushes its vector to all, and sums all.
#pragma once

#include "collective/all_reduce/push_protocol.h"
#include "collective/cuda/elements.cuh"
#include "collective/cuda/launch.cuh"
#include "cuda/ptx/grid.cuh"

namespace coprime {

// kShipped is what runs. kFenced has a fence on each side of the exchange, and in kSlow rank 0 reads late: both must
// give the same. The others break a rule that the protocol rests on, and must go wrong: one half, where rank 0 reads
// late, and a rank's own term first.
enum class PushVariant { kShipped, kFenced, kSlow, kOneHalf, kOwnFirst };

template <PushVariant kVariant>
__device__ inline int half_of(uint32_t call) {
  return kVariant == PushVariant::kOneHalf ? 0 : static_cast<int>(call & 1);
}

// The 16-byte words of the slot that `sender` fills at `receiver`.
__device__ inline uint4* slot_words(const GpuWorld& world, int half, int sender, int receiver) {
  return reinterpret_cast<uint4*>(world.slabs[receiver] + world.layout.slot(half, sender_index(sender, receiver)));
}

__device__ inline uint4 sent_words(const uint4& words) {
  return make_uint4(sent_word(words.x), sent_word(words.y), sent_word(words.z), sent_word(words.w));
}

__device__ inline bool has_empty(const uint4& words) {
  return words.x == kEmptyWord || words.y == kEmptyWord || words.z == kEmptyWord || words.w == kEmptyWord;
}

__device__ inline uint4 empty_words() { return make_uint4(kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord); }

// Up to four ranks have kernels of their own, where the world is known at compile time.
template <int kMost>
__device__ inline int ranks_of(const GpuWorld& world) {
  return kMost < kMaxGpuRanks ? kMost : world.world;
}

template <int kMost>
__device__ inline void push_to_all(const GpuWorld& world, int half, int64_t place, const uint4& words) {
  const uint4 sent = sent_words(words);
#pragma unroll
  for (int peer = 0; peer < kMost; ++peer) {
    if (peer < ranks_of<kMost>(world) && peer != world.rank)
      ptx::store_relaxed_system(slot_words(world, half, world.rank, peer) + place, sent);
  }
}

// All ranks' words at a place of the slots, this rank's own given; those that came are empty again. False: given up.
template <int kMost>
__device__ inline bool collect(const GpuWorld& world, int half, int64_t place, const uint4& own, Patience& patience,
                               Terms<kMost>& terms) {
  int late;
  do {
    late = -1;
#pragma unroll
    for (int rank = 0; rank < kMost; ++rank) {
      if (rank >= ranks_of<kMost>(world)) break;
      terms.of[rank] =
          rank == world.rank ? own : ptx::load_relaxed_system(slot_words(world, half, rank, world.rank) + place);
    }
#pragma unroll
    for (int rank = 0; rank < kMost; ++rank) {
      if (rank < ranks_of<kMost>(world) && rank != world.rank && has_empty(terms.of[rank])) late = rank;
    }
    if (late >= 0 && !patience.wait_on(late, static_cast<uint64_t>(place))) return false;
  } while (late >= 0);
#pragma unroll
  for (int rank = 0; rank < kMost; ++rank) {
    if (rank < ranks_of<kMost>(world) && rank != world.rank)
      ptx::store_relaxed_system(slot_words(world, half, rank, world.rank) + place, empty_words());
  }
  return true;
}

template <PushVariant kVariant>
__device__ inline void read_late(const GpuWorld& world) {
  if constexpr (kVariant == PushVariant::kSlow || kVariant == PushVariant::kOneHalf) {
    const uint64_t begin = ptx::clock_ns();
    while (world.rank == 0 && ptx::clock_ns() - begin < 30'000) __nanosleep(1000);
  }
}

template <PushVariant kVariant, int kMost>
__device__ inline void put_in_order(const GpuWorld& world, Terms<kMost>& terms) {
  if constexpr (kVariant == PushVariant::kOwnFirst) {
    const Terms<kMost> in_rank_order = terms;
    for (int i = 0; i < world.world; ++i) terms.of[i] = in_rank_order.of[(world.rank + i) % world.world];
  }
}

// `words` of 16 bytes; in may be out. Every thread pushes all its words before it waits for any.
template <class Type, int kMost, PushVariant kVariant>
__global__ void __launch_bounds__(256)
    push_kernel(const __grid_constant__ GpuWorld world, const uint4* in, uint4* out, int64_t words) {
  const int64_t first = int64_t{blockIdx.x} * blockDim.x + threadIdx.x, step = int64_t{gridDim.x} * blockDim.x;
  ptx::wait_for_earlier_grid();
  uint4 own = first < words ? in[first] : uint4{};
  const Launch launch = begin_launch(world);
  if (launch.aborted) return end_aborted(world, launch.call);
  const int half = half_of<kVariant>(launch.call);
  if constexpr (kVariant == PushVariant::kFenced) ptx::fence_system();
  for (int64_t word = first; word < words; word += step)
    push_to_all<kMost>(world, half, word, word == first ? own : in[word]);
  count_launch(world, launch.call);
  ptx::let_next_grid_begin();
  read_late<kVariant>(world);

  Patience patience(world, launch.call);
  for (int64_t word = first; word < words; word += step) {
    if (word != first) own = in[word];
    Terms<kMost> terms;
    if (!collect<kMost>(world, half, word, own, patience, terms)) return count_bail_out(world, launch.call);
    if constexpr (kVariant == PushVariant::kFenced) ptx::fence_system();
    put_in_order<kVariant>(world, terms);
    out[word] = sum_in_rank_order<Type, kMost>(terms, ranks_of<kMost>(world));
  }
}

}  // namespace coprime
