#include "device/isa.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace coprime {
namespace {

// The instructions that Highway's targets may use, and what the kernels' own assembly needs.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd");
}

// The registers of one leaf of cpuid, all zero where the CPU does not know it.
struct CpuLeaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  CpuLeaf(unsigned leaf, unsigned subleaf) { __get_cpuid_count(leaf, subleaf, &eax, &ebx, &ecx, &edx); }
};

// The states that the system saves: bits of XCR0.
uint64_t saved_states() {
  if ((CpuLeaf(1, 0).ecx >> 27 & 1) == 0) return 0;  // OSXSAVE
  uint32_t low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// Linux gives the tiles' data to processes that ask for it: their threads' later signal frames are larger.
bool may_use_tiles() {
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool has_amx() {
  const unsigned edx = CpuLeaf(7, 0).edx;
  const bool tiles = (edx >> 24 & 1) != 0, int8 = (edx >> 25 & 1) != 0, bf16 = (edx >> 22 & 1) != 0;
  constexpr uint64_t kTileStates = uint64_t{3} << 17;
  return has_avx512() && tiles && int8 && bf16 && (saved_states() & kTileStates) == kTileStates && may_use_tiles();
}

}  // namespace

Isa best_isa(Isa limit) {
  if (limit >= Isa::kAmx && has_amx()) return Isa::kAmx;
  return std::min(limit, has_avx512() ? Isa::kAvx512 : has_avx2() ? Isa::kAvx2 : Isa::kReference);
}

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
    case Isa::kReference:
      break;
  }
  return "reference";
}

CpuFeatures cpu_features() {
  // Leaf 7, subleaf 1: the compiler's run-time check has no name for these.
  const unsigned eax = CpuLeaf(7, 1).eax;
  return {.avx_vnni = (eax >> 4 & 1) != 0,
          .avx512_vnni = __builtin_cpu_supports("avx512vnni") != 0,
          .avx512_bf16 = (eax >> 5 & 1) != 0 && __builtin_cpu_is("amd") != 0};
}

const char* missing_feature(const CpuFeatures& needed, const CpuFeatures& there) {
  if (needed.avx_vnni && !there.avx_vnni) return "AVX-VNNI";
  if (needed.avx512_vnni && !there.avx512_vnni) return "AVX512-VNNI";
  if (needed.avx512_bf16 && !there.avx512_bf16) return "AVX512-BF16 at full rate";
  return nullptr;
}

}  // namespace coprime
