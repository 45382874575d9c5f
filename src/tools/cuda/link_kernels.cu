#include "cuda/ptx/clock.cuh"
#include "cuda/ptx/memory.cuh"
#include "tools/cuda/link_kernels.h"

namespace coprime {
namespace {

__global__ void push_all(const uint4* from, const __grid_constant__ PushTargets targets, int64_t words) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    const uint4 word = from[i];
    for (int t = 0; t < targets.count; ++t) static_cast<uint4*>(targets.memory[t])[i] = word;
  }
}

__global__ void ping_pong(uint32_t* mine, uint32_t* theirs, bool serves, int rounds, uint64_t timeout_ns,
                          uint64_t* took_ns) {
  const uint64_t begin = ptx::clock_ns();
  uint64_t first_ns = begin;
  *took_ns = 0;
  for (int round = 1; round <= rounds; ++round) {
    if (serves) ptx::store_relaxed_system(theirs, static_cast<uint32_t>(round));
    for (int look = 0; ptx::load_relaxed_system(mine) != static_cast<uint32_t>(round); ++look) {
      if (look % 64 == 63 && ptx::clock_ns() - begin > timeout_ns) return;
    }
    if (round == 1) first_ns = ptx::clock_ns();  // the other end may have come late
    if (!serves) ptx::store_relaxed_system(theirs, static_cast<uint32_t>(round));
  }
  *took_ns = ptx::clock_ns() - first_ns;
}

}  // namespace

cudaError_t push_bytes(cudaStream_t stream, const void* from, const PushTargets& targets, int64_t bytes) {
  const int64_t words = bytes / 16;
  const auto blocks = static_cast<unsigned>(words < 132 * 4 * 512 ? (words + 511) / 512 : 132 * 4);
  push_all<<<blocks, 512, 0, stream>>>(static_cast<const uint4*>(from), targets, words);
  return cudaGetLastError();
}

cudaError_t play_ping_pong(cudaStream_t stream, uint32_t* mine, uint32_t* theirs, bool serves, int rounds,
                           uint64_t timeout_ns, uint64_t* took_ns) {
  ping_pong<<<1, 1, 0, stream>>>(mine, theirs, serves, rounds, timeout_ns, took_ns);
  return cudaGetLastError();
}

cudaError_t load_link_kernels() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, push_all);
  return status != cudaSuccess ? status : cudaFuncGetAttributes(&attributes, ping_pong);
}

}  // namespace coprime
