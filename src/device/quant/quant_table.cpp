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
