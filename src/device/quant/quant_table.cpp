#include <fmt/format.h>

#include <vector>

#include "device/quant/quant_kernels.h"

namespace coprime {
std::span<const QuantKernelRow> quant_kernels() {
  static const std::vector<QuantKernelRow> kTable = [] {
    std::vector<QuantKernelRow> rows;
    for (const auto& part :
         {quant_amx_rows(), quant_avx512_vnni_rows(), quant_avx_vnni_rows(), quant_avx2_rows(), quant_reference_rows()})
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

std::vector<KernelVerdict> judge_quant_kernels(std::span<const QuantKernelRow> rows, const QuantRequest& request) {
  const int best = select_quant_kernel(rows, request);
  std::vector<KernelVerdict> verdicts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const QuantKernelRow& row = rows[i];
    if (row.type != request.type) continue;
    const char* missing = missing_feature(row.features, request.features);
    std::string reason;
    if (static_cast<int>(i) == best) {
      // chosen
    } else if (row.isa > request.isa) {
      reason = fmt::format("needs {}, the best to use is {}", isa_name(row.isa), isa_name(request.isa));
    } else if (missing != nullptr) {
      reason = fmt::format("needs {}, which this CPU lacks", missing);
    } else {
      reason = fmt::format("{} is better", rows[static_cast<size_t>(best)].name);
    }
    verdicts.push_back({row.name, std::move(reason)});
  }
  return verdicts;
}

}  // namespace coprime
