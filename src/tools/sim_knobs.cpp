#include "tools/sim_knobs.h"

#include <algorithm>

#include "base/error.h"

namespace coprime {

using tl::Kernel;

std::vector<std::string> knobs_of(Kernel kernel) {
  std::vector<std::string> knobs;
  const auto add = [&](std::initializer_list<std::string> names) { knobs.insert(knobs.end(), names); };
  if (kernel == Kernel::kAllReduce) {
    add({"cubes", "pes", "group", "head-dim", "across"});
    return knobs;
  }
  const bool is_short = kernel == Kernel::kDecodeShort || kernel == Kernel::kPrefillShort;
  const bool prefill = kernel == Kernel::kPrefill || kernel == Kernel::kPrefillShort || kernel == Kernel::kKvFanOut;
  const bool sweeps = kernel == Kernel::kDecode || kernel == Kernel::kDecodeShort || kernel == Kernel::kFanOut;
  const bool reduces = kernel == Kernel::kDecode || kernel == Kernel::kDecodeShort || kernel == Kernel::kBlockingDot;
  add({"context", "max-context", is_short ? "kv-per-cube" : "cubes", "pes", "tile", "kv-heads", "group", "head-dim"});
  if (kernel == Kernel::kDecode || kernel == Kernel::kPrefill) add({"users"});
  if (sweeps) add({"variant"});
  if (reduces) add({"within"});
  if (reduces && !is_short) add({"across"});
  if (prefill) add({"query-begin", "query-end", "query-rows"});
  return knobs;
}

bool takes(Kernel kernel, std::string_view knob) {
  if (knob == "topology") return takes(kernel, "within") || takes(kernel, "across");
  return std::ranges::count(knobs_of(kernel), knob) > 0;
}

void check_knob(const std::vector<Kernel>& kernels, std::string_view knob, std::string_view dashes) {
  if (std::ranges::any_of(kernels, [&](Kernel kernel) { return takes(kernel, knob); })) return;
  std::string of;
  for (const std::string& name : knobs_of(kernels.front()))
    of += fmt::format("{}{}{}", of.empty() ? "" : ", ", dashes, name);
  fail(ErrorKind::kUsage, "{} has no use for {}{}: it takes {}", name_of(kernels.front()), dashes, knob, of);
}

}  // namespace coprime
