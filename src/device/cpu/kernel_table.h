// Tables of kernels, and the choice of one: a pure function of the table and the request, which can say why each other
// row lost.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/math_mode.h"

namespace coprime {

template <class Fn>
struct KernelRow {
  Isa isa;           // what the CPU must have
  DType type;        // of the weights or pages it reads
  const char* name;  // for messages
  OrderClass order;
  Fn fn;
  CpuFeatures features = {};       // what the CPU must have, too
  MathMode math = MathMode::kF32;  // the finest arithmetic that it serves, and is worth it for
};

struct KernelRequest {
  Isa isa;  // the best that may be used
  DType type;
  CpuFeatures features = {};  // of the CPU
  MathMode math = MathMode::kF32;
};

// The index of the row with the highest isa among those that fit; -1 if none does.
template <class Fn>
int select_kernel(std::span<const KernelRow<Fn>> rows, KernelRequest request) {
  int best = -1;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].type != request.type || rows[i].isa > request.isa) continue;
    if (missing_feature(rows[i].features, request.features) != nullptr || rows[i].math > request.math) continue;
    if (best < 0 || rows[i].isa > rows[static_cast<size_t>(best)].isa) best = static_cast<int>(i);
  }
  return best;
}

// What became of a row: `reason` is empty for the chosen one.
struct KernelVerdict {
  std::string name, reason;
};

// Of each row for the request's type.
template <class Fn>
std::vector<KernelVerdict> judge_kernels(std::span<const KernelRow<Fn>> rows, KernelRequest request) {
  const int best = select_kernel(rows, request);
  std::vector<KernelVerdict> verdicts;
  for (size_t i = 0; i < rows.size(); ++i) {
    const KernelRow<Fn>& row = rows[i];
    if (row.type != request.type) continue;
    std::string reason;
    if (static_cast<int>(i) == best) {
      // chosen
    } else if (row.isa > request.isa) {
      reason = fmt::format("needs {}, the best to use is {}", isa_name(row.isa), isa_name(request.isa));
    } else if (const char* missing = missing_feature(row.features, request.features)) {
      reason = fmt::format("needs {}, which this CPU lacks", missing);
    } else if (row.math > request.math) {
      reason = fmt::format("is for --math {}, not {}", math_name(row.math), math_name(request.math));
    } else {
      reason = fmt::format("{} is better", rows[static_cast<size_t>(best)].name);
    }
    verdicts.push_back({row.name, std::move(reason)});
  }
  return verdicts;
}

// One line a row: "linear avx512 BF16: chosen", or why not.
inline std::string verdict_lines(std::span<const KernelVerdict> verdicts) {
  std::string text;
  for (const KernelVerdict& each : verdicts) {
    text += fmt::format("{}: {}\n", each.name, each.reason.empty() ? "chosen" : each.reason);
  }
  return text;
}

}  // namespace coprime
