#include <cpuid.h>
#include <fmt/format.h>

#include <vector>

#include "device/cpu/quant/quant_kernels.h"

namespace coprime {
namespace {

const char* missing_feature(const CpuFeatures& needed, const CpuFeatures& there) {
  if (needed.avx_vnni && !there.avx_vnni) return "AVX-VNNI";
  if (needed.avx512_vnni && !there.avx512_vnni) return "AVX512-VNNI";
  return nullptr;
}

}  // namespace

CpuFeatures cpu_features() {
  // avxvnni is no name that the compiler's run-time check knows: bit 4 of EAX of leaf 7, subleaf 1.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool leaf = __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0;
  return {.avx_vnni = leaf && (eax >> 4 & 1) != 0, .avx512_vnni = __builtin_cpu_supports("avx512vnni") != 0};
}

std::span<const QuantKernelRow> quant_kernels() {
  static const std::vector<QuantKernelRow> kTable = [] {
    std::vector<QuantKernelRow> rows;
    for (const auto& part :
         {quant_avx512_vnni_rows(), quant_avx_vnni_rows(), quant_avx2_rows(), quant_reference_rows()})
      rows.insert(rows.end(), part.begin(), part.end());
    return rows;
  }();
  return kTable;
}

int select_quant_kernel(std::span<const QuantKernelRow> rows, const QuantRequest& request) {
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].type == request.type && rows[i].isa <= request.isa &&
        missing_feature(rows[i].features, request.features) == nullptr) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

std::string explain_quant_selection(std::span<const QuantKernelRow> rows, const QuantRequest& request) {
  const int best = select_quant_kernel(rows, request);
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    const QuantKernelRow& row = rows[i];
    if (row.type != request.type) continue;
    const char* missing = missing_feature(row.features, request.features);
    text += fmt::format("{}: ", row.name);
    if (static_cast<int>(i) == best) {
      text += "chosen\n";
    } else if (row.isa > request.isa) {
      text += fmt::format("needs {}, the best to use is {}\n", isa_name(row.isa), isa_name(request.isa));
    } else if (missing != nullptr) {
      text += fmt::format("needs {}, which this CPU lacks\n", missing);
    } else {
      text += fmt::format("{} is better\n", rows[static_cast<size_t>(best)].name);
    }
  }
  return text;
}

}  // namespace coprime
