// All-gather of columns: every rank pushes its slot, with flags, and lays the parts of all side by side.
#pragma once

#include "collective/cuda/flags.cuh"
#include "collective/cuda/gather_arguments.h"

namespace coprime {

__global__ void __launch_bounds__(512) gather_kernel(const __grid_constant__ GpuWorld world, const uint4* in,
                                                     const __grid_constant__ GatherArguments gather) {
  constexpr int64_t kBlockWords = kFlagBlockBytes / 16;
  const int64_t words = gather.rows * gather.row_elements / 4;
  const auto end_of = [&](int64_t block) { return min((block + 1) * kBlockWords, words); };
  const auto push = [&](int half, int64_t block) {
    for (int64_t word = block * kBlockWords + threadIdx.x; word < end_of(block); word += blockDim.x) {
      const uint4 own = in[word];
      for (int peer = 0; peer < world.world; ++peer) {
        if (peer != world.rank) ptx::store_relaxed_system(slot_words(world, half, world.rank, peer) + word, own);
      }
    }
  };
  const auto fold = [&](int half, int64_t block) {
    for (int64_t word = block * kBlockWords + threadIdx.x; word < end_of(block); word += blockDim.x) {
      for (int rank = 0; rank < world.world; ++rank) {
        uint4 part = in[word];
        if (rank != world.rank) {
          uint4* const place = slot_words(world, half, rank, world.rank) + word;
          part = ptx::load_relaxed_system(place);
          if (word * 16 < world.kept_empty) ptx::store_relaxed_system(place, empty_words());
        }
        const uint32_t elements[4] = {part.x, part.y, part.z, part.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int64_t row = (word * 4 + i) / gather.row_elements, column = (word * 4 + i) % gather.row_elements;
          if (column < gather.count[rank])
            gather.out[row * gather.stride + gather.first[rank] + column] = __uint_as_float(elements[i]);
        }
      }
    }
  };
  run_blocks(world, (words + kBlockWords - 1) / kBlockWords, kFlagBlockBytes, push, fold);
}

}  // namespace coprime
