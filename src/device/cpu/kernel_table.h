// Tables of kernels, and the choice of one: a pure function of the table and the request, which can say why each other
// row lost.
#pragma once

#include <span>
#include <string>

#include "device/cpu/cpu_device.h"

namespace coprime {

template <class Fn>
struct KernelRow {
  Isa isa;           // what the CPU must have
  DType type;        // of the weights or pages it reads
  const char* name;  // for messages
  OrderClass order;
  Fn fn;
  CpuFeatures features = {};  // what the CPU must have, too
};

struct KernelRequest {
  Isa isa;  // the best that may be used
  DType type;
  CpuFeatures features = {};  // of the CPU
};

// The index of the row with the highest isa among those that fit; -1 if none does.
template <class Fn>
int select_kernel(std::span<const KernelRow<Fn>> rows, KernelRequest request) {
  int best = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].type != request.type || rows[i].isa > request.isa) continue;
    if (missing_feature(rows[i].features, request.features) != nullptr) continue;
    if (best < 0 || rows[i].isa > rows[static_cast<size_t>(best)].isa) best = static_cast<int>(i);
  }
  return best;
}

// One line a row: "linear avx512 BF16: chosen", or why not.
template <class Fn>
std::string explain_selection(std::span<const KernelRow<Fn>> rows, KernelRequest request) {
  const int best = select_kernel(rows, request);
  std::string text;
  for (size_t i = 0; i < rows.size(); ++i) {
    text += fmt::format("{}: ", rows[i].name);
    if (static_cast<int>(i) == best) {
      text += "chosen\n";
    } else if (rows[i].type != request.type) {
      text += fmt::format("reads {}, not {}\n", dtype_name(rows[i].type), dtype_name(request.type));
    } else if (rows[i].isa > request.isa) {
      text += fmt::format("needs {}, the best to use is {}\n", isa_name(rows[i].isa), isa_name(request.isa));
    } else if (const char* missing = missing_feature(rows[i].features, request.features)) {
      text += fmt::format("needs {}, which this CPU lacks\n", missing);
    } else {
      text += fmt::format("{} is better\n", rows[static_cast<size_t>(best)].name);
    }
  }
  return text;
}

}  // namespace coprime
