// The instruction sets that a host device has kernels for, and what this CPU has of them.
#pragma once

#include <cstdint>
#include <string_view>

namespace coprime {

// AMX: tiles with products of int8 and bf16, beside AVX-512.
enum class Isa : uint8_t { kReference, kAvx2, kAvx512, kAmx };

// The best that this CPU has, but no better than `limit`. kReference where it has no AVX2 with FMA and F16C. Asks the
// system for the use of tiles.
Isa best_isa(Isa limit);
std::string_view isa_name(Isa isa);

// What a kernel may need beyond its instruction set.
struct CpuFeatures {
  bool avx_vnni = false, avx512_vnni = false;
  bool avx512_bf16 = false;  // at the rate of f32: AMD's. Intel's vdpbf16ps takes longer than the f32 that it replaces.
};
CpuFeatures cpu_features();  // of this CPU

// The name of a feature that is needed and not there, or nullptr.
const char* missing_feature(const CpuFeatures& needed, const CpuFeatures& there);

}  // namespace coprime
