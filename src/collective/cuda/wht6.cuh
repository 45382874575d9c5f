// The lossy all-reduce: every rank pushes the 6-bit form of its vector (all_reduce/wht6.h has the format), keeps its
// own beside, and folds all ranks' forms in rank order. A warp encodes and folds a chunk of 2048 elements at a time:
// lane L holds, of group 4t + L / 8 for t in 0..7, elements 8 (L % 8) to 8 (L % 8) + 7.
#pragma once

#include "collective/all_reduce/wht6.h"
#include "collective/cuda/flags.cuh"

namespace coprime {

constexpr uint32_t kAllLanes = 0xffffffff;
constexpr int kWht6WordsPerLane = 12;  // of 32 bits: 64 codes
constexpr int64_t kWht6BlockElements = kFlagBlockBytes / 2, kWht6BlockChunks = kWht6BlockElements / kWht6ChunkElements;

// A lane's 8 elements of one group, transformed together with those of the 7 lanes that share the group.
__device__ inline void walsh_hadamard_lanes(float (&values)[8]) {
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if ((i & apart) != 0) continue;
      const float a = values[i], b = values[i + apart];
      values[i] = __fadd_rn(a, b);
      values[i + apart] = __fsub_rn(a, b);
    }
  }
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) {
    const bool second = (threadIdx.x & apart) != 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, values[i], apart);
      values[i] = second ? __fsub_rn(other, values[i]) : __fadd_rn(values[i], other);
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) values[i] = __fmul_rn(values[i], 0.125f);
}

// bf16 bits of the group's scale, in all of its 8 lanes.
__device__ inline uint32_t group_scale(const float (&values)[8]) {
  float largest = 0;
  bool finite = true;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    largest = fmaxf(largest, fabsf(values[i]));
    finite = finite && fabsf(values[i]) <= 3.402823466e38f;
  }
#pragma unroll
  for (int apart = 1; apart < 8; apart *= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, apart));
    finite = __shfl_xor_sync(kAllLanes, finite, apart) && finite;
  }
  if (!finite) return 0x7fff;
  const uint32_t scale = ptx::pack_bf16(0, __fdiv_rn(largest, 31.0f)) & 0xffff;
  return __uint_as_float(scale << 16) > 0 ? scale : 0x3f80;
}

__device__ inline uint32_t code_of(float value, float scale) {
  if (isnan(scale)) return 0;
  return static_cast<uint32_t>(static_cast<int>(fminf(fmaxf(rintf(__fdiv_rn(value, scale)), -32.0f), 31.0f)) + 32);
}

// A lane's 64 codes as a string of bits.
struct LaneCodes {
  uint32_t words[kWht6WordsPerLane];

  // The 8 codes of iterations t and t + 1, for even t.
  __device__ void put(int t, uint64_t low, uint64_t high) {
    words[t / 2 * 3] = static_cast<uint32_t>(low);
    words[t / 2 * 3 + 1] = static_cast<uint32_t>(low >> 32) | static_cast<uint32_t>(high << 16);
    words[t / 2 * 3 + 2] = static_cast<uint32_t>(high >> 16);
  }
  __device__ int get(int t, int i) const {  // t and i are known at compile time
    const int bit = (t * 8 + i) * 6, word = bit / 32, shift = bit % 32;
    uint32_t code = words[word] >> shift;
    if (shift > 26) code |= words[word + 1] << (32 - shift);
    return static_cast<int>(code & 63) - 32;
  }
  __device__ uint4 quarter(int u) const {
    return make_uint4(words[4 * u], words[4 * u + 1], words[4 * u + 2], words[4 * u + 3]);
  }
  __device__ void set_quarter(int u, const uint4& w) {
    words[4 * u] = w.x, words[4 * u + 1] = w.y, words[4 * u + 2] = w.z, words[4 * u + 3] = w.w;
  }
};

// Where a chunk's codes and scales lie in a slot.
struct WirePlace {
  uint4* codes;                 // this lane's first 16 bytes; the others 32 apart
  uint32_t* scales;             // of the chunk, two to a word
  int64_t codes_at, scales_at;  // their bytes in the slot
};
__device__ inline WirePlace wire_place(const GpuWorld& world, int half, int sender, int receiver, int64_t chunk) {
  std::byte* const slot = reinterpret_cast<std::byte*>(slot_words(world, half, sender, receiver));
  const int64_t codes = chunk * kWht6ChunkBytes, scales = world.layout.slot_bytes / 2 + chunk * 2 * kWht6ChunkGroups;
  return {reinterpret_cast<uint4*>(slot + codes) + threadIdx.x % 32, reinterpret_cast<uint32_t*>(slot + scales), codes,
          scales};
}

template <class Type>
__device__ inline void encode_chunk(const GpuWorld& world, int half, int64_t chunk, const uint4* in, int64_t elements) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  LaneCodes codes;
  uint32_t own_scale = 0;  // of group `lane`
  uint64_t low = 0;
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    const int64_t element = chunk * kWht6ChunkElements + t * 256 + lane * 8;
    float values[8] = {};
    if (element < elements) widen<Type>(in[element / 8], values);
    walsh_hadamard_lanes(values);
    const uint32_t scale = group_scale(values);
    const uint32_t of_lane = __shfl_sync(kAllLanes, scale, lane % 4 * 8);
    if (lane / 4 == t) own_scale = of_lane;
    uint64_t bits = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) bits |= uint64_t{code_of(values[i], __uint_as_float(scale << 16))} << (6 * i);
    if (t % 2 == 0) {
      low = bits;
    } else {
      codes.put(t - 1, low, bits);
    }
  }
  const uint32_t pair = own_scale | __shfl_down_sync(kAllLanes, own_scale, 1) << 16;
  for (int peer = 0; peer < world.world; ++peer) {
    if (peer == world.rank) continue;
    const WirePlace place = wire_place(world, half, world.rank, peer, chunk);
#pragma unroll
    for (int u = 0; u < 3; ++u) ptx::store_relaxed_system(place.codes + 32 * u, codes.quarter(u));
    if (lane % 2 == 0) ptx::store_relaxed_system(place.scales + lane / 2, pair);
  }
  std::byte* const slab = world.slabs[world.rank];
  uint4* const own = reinterpret_cast<uint4*>(slab + world.layout.own_codes() + chunk * kWht6ChunkBytes) + lane;
#pragma unroll
  for (int u = 0; u < 3; ++u) own[32 * u] = codes.quarter(u);
  reinterpret_cast<float*>(slab + world.layout.own_scales())[chunk * kWht6ChunkGroups + lane] =
      __uint_as_float(own_scale << 16);
}

// One rank's codes of a chunk and the scale of group `lane`; what came from a peer is left empty where it must be.
__device__ inline float take_chunk(const GpuWorld& world, int half, int rank, int64_t chunk, LaneCodes& codes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (rank == world.rank) {
    const std::byte* const slab = world.slabs[rank];
    const auto* const own =
        reinterpret_cast<const uint4*>(slab + world.layout.own_codes() + chunk * kWht6ChunkBytes) + lane;
#pragma unroll
    for (int u = 0; u < 3; ++u) codes.set_quarter(u, own[32 * u]);
    return reinterpret_cast<const float*>(slab + world.layout.own_scales())[chunk * kWht6ChunkGroups + lane];
  }
  const WirePlace place = wire_place(world, half, rank, world.rank, chunk);
#pragma unroll
  for (int u = 0; u < 3; ++u) {
    codes.set_quarter(u, ptx::load_relaxed_system(place.codes + 32 * u));
    if (place.codes_at + (32 * u + lane) * 16 < world.kept_empty)
      ptx::store_relaxed_system(place.codes + 32 * u, empty_words());
  }
  const uint32_t pair = ptx::load_relaxed_system(place.scales + lane / 2);
  __syncwarp();
  if (lane % 2 == 0 && place.scales_at + lane * 2 < world.kept_empty)
    ptx::store_relaxed_system(place.scales + lane / 2, kEmptyWord);
  return __uint_as_float(lane % 2 == 0 ? pair << 16 : pair & 0xffff0000);
}

template <class Type>
__device__ inline void fold_chunk(const GpuWorld& world, int half, int64_t chunk, uint4* out, int64_t elements) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  float sums[8][8];
  for (int rank = 0; rank < world.world; ++rank) {
    LaneCodes codes;
    const float own_scale = take_chunk(world, half, rank, chunk, codes);
#pragma unroll
    for (int t = 0; t < 8; ++t) {
      const float scale = __shfl_sync(kAllLanes, own_scale, t * 4 + lane / 8);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float term = __fmul_rn(static_cast<float>(codes.get(t, i)), scale);
        sums[t][i] = rank == 0 ? term : __fadd_rn(sums[t][i], term);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < 8; ++t) {
    walsh_hadamard_lanes(sums[t]);
    const int64_t element = chunk * kWht6ChunkElements + t * 256 + lane * 8;
    if (element < elements) out[element / 8] = narrow<Type>(sums[t]);
  }
}

template <class Type>
__global__ void __launch_bounds__(128)
    wht6_kernel(const __grid_constant__ GpuWorld world, const uint4* in, uint4* out, int64_t elements) {
  const int64_t chunks = wht6_chunks(elements);
  const int warp = static_cast<int>(threadIdx.x / 32), warps = static_cast<int>(blockDim.x / 32);
  const auto each_chunk = [&](int64_t block, const auto& visit) {
    const int64_t end = min((block + 1) * kWht6BlockChunks, chunks);
    for (int64_t chunk = block * kWht6BlockChunks + warp; chunk < end; chunk += warps) visit(chunk);
  };
  const auto push = [&](int half, int64_t block) {
    each_chunk(block, [&](int64_t chunk) { encode_chunk<Type>(world, half, chunk, in, elements); });
  };
  const auto fold = [&](int half, int64_t block) {
    each_chunk(block, [&](int64_t chunk) { fold_chunk<Type>(world, half, chunk, out, elements); });
  };
  run_blocks(world, (chunks + kWht6BlockChunks - 1) / kWht6BlockChunks,
             kWht6BlockChunks * (kWht6ChunkBytes + 2 * kWht6ChunkGroups), push, fold);
}

}  // namespace coprime
