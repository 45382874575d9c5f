#include "soak_kernels.h"

#include <cuda_bf16.h>

#include "collective/all_reduce/push_protocol.h"
#include "collective/cuda/push.cuh"

namespace coprime::testing {
namespace {

__device__ uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

// Numbers of two sizes, the larger of which often cancel, so that the order of additions shows; now and then words that
// are no numbers, the empty one among them.
__device__ uint32_t element(uint32_t bits) {
  const uint32_t sign = bits & 0x8000;
  return sign | (bits % 3 == 0 ? 0x3f00 + (bits >> 16) % 0x180 : 0x4c00 + (bits >> 16) % 2);
}
__device__ uint32_t word_of(const SoakCall& call, int rank, int64_t index) {
  const uint64_t bits =
      mix(call.seed + mix(call.call + mix(static_cast<uint64_t>(index) * 8 + static_cast<uint64_t>(rank))));
  if (!call.numbers_only && bits >> 58 == 0) return kEmptyWord;
  if (!call.numbers_only && bits >> 57 == 1) return static_cast<uint32_t>(bits);
  return element(static_cast<uint32_t>(bits)) | element(static_cast<uint32_t>(bits >> 25)) << 16;
}

__device__ void wait_ns(uint64_t ns) {
  const uint64_t begin = ptx::clock_ns();
  while (ptx::clock_ns() - begin < ns) __nanosleep(100);
}

__global__ void fill(const SoakCall call, uint32_t* vector) {
  if (call.delay_ns > 0) wait_ns(call.delay_ns);
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < call.words * 4; i += step)
    vector[i] = word_of(call, call.rank, i);
}

__device__ uint32_t round_one(float value) {
  return isnan(value) ? 0x7fff : __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

__global__ void check(const SoakCall call, const uint32_t* sum, SoakTally* tally) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  unsigned long long wrong = 0, hash = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < call.words * 4; i += step) {
    const uint32_t first = word_of(call, 0, i);
    float low = __uint_as_float(first << 16), high = __uint_as_float(first & 0xffff0000);
    for (int rank = 1; rank < call.ranks; ++rank) {
      const uint32_t word = word_of(call, rank, i);
      low += __uint_as_float(word << 16);
      high += __uint_as_float(word & 0xffff0000);
    }
    wrong += sum[i] != (round_one(low) | round_one(high) << 16);
    hash += mix(sum[i] + mix(static_cast<uint64_t>(i) + (uint64_t{call.call} << 32)));
  }
  if (wrong != 0) atomicAdd(&tally->wrong, wrong);
  atomicAdd(&tally->hash, hash);
}

__global__ void hash_all(const uint32_t* data, int64_t words, SoakTally* tally) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  unsigned long long hash = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words * 4; i += step)
    hash += mix(data[i] + mix(static_cast<uint64_t>(i)));
  atomicAdd(&tally->hash, hash);
}

__global__ void wait_alone(uint64_t ns) { wait_ns(ns); }

int blocks_of(int64_t words) { return static_cast<int>(words < 256 * 16 ? (words + 255) / 256 : 16); }

Kernel kernel_of(const void* function) { return {function, 256}; }

}  // namespace

void fill_vector(cudaStream_t stream, const SoakCall& call, void* vector) {
  fill<<<blocks_of(call.words), 256, 0, stream>>>(call, static_cast<uint32_t*>(vector));
}
void check_sum(cudaStream_t stream, const SoakCall& call, const void* sum, SoakTally* tally) {
  check<<<blocks_of(call.words), 256, 0, stream>>>(call, static_cast<const uint32_t*>(sum), tally);
}
void hash_words(cudaStream_t stream, const void* data, int64_t words, SoakTally* tally) {
  hash_all<<<blocks_of(words), 256, 0, stream>>>(static_cast<const uint32_t*>(data), words, tally);
}
void wait_on_gpu(cudaStream_t stream, uint64_t ns) { wait_alone<<<1, 1, 0, stream>>>(ns); }

Kernel fenced_push_kernel() {
  return kernel_of(reinterpret_cast<const void*>(push_kernel<Bf16, 3, PushVariant::kFenced>));
}
Kernel slow_push_kernel() { return kernel_of(reinterpret_cast<const void*>(push_kernel<Bf16, 3, PushVariant::kSlow>)); }
Kernel one_half_push_kernel() {
  return kernel_of(reinterpret_cast<const void*>(push_kernel<Bf16, 3, PushVariant::kOneHalf>));
}
Kernel own_first_push_kernel() {
  return kernel_of(reinterpret_cast<const void*>(push_kernel<Bf16, 3, PushVariant::kOwnFirst>));
}

}  // namespace coprime::testing
