// Kernels of the GPU tests: contributions and expected sums made on the GPU, delays, and the variants of the push
// kernel that are no part of the program.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collective/cuda/kernels.h"

namespace coprime::testing {

// One call of one rank: its vector follows from seed, call, rank and place alone.
struct SoakCall {
  uint64_t seed = 0;
  uint32_t call = 0;
  int32_t rank = 0, ranks = 0;
  int64_t words = 0;      // of 16 bytes, bf16
  uint32_t delay_ns = 0;  // before the vector is there
  bool numbers_only = false;
};

struct SoakTally {
  unsigned long long wrong = 0;  // words of 32 bits
  unsigned long long hash = 0;   // of all outputs
};

void fill_vector(cudaStream_t stream, const SoakCall& call, void* vector);
// Compares the sum with what all ranks' vectors give in rank order, and adds it to the hash.
void check_sum(cudaStream_t stream, const SoakCall& call, const void* sum, SoakTally* tally);
// Adds any bytes to the hash.
void hash_words(cudaStream_t stream, const void* data, int64_t words, SoakTally* tally);
// Keeps a stream busy.
void wait_on_gpu(cudaStream_t stream, uint64_t ns);

// bf16, three ranks.
Kernel fenced_push_kernel();
Kernel slow_push_kernel();
Kernel one_half_push_kernel();
Kernel own_first_push_kernel();

}  // namespace coprime::testing
