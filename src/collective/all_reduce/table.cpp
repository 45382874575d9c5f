#include "collective/all_reduce/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "collective/all_reduce/add_norm_quant.h"
#include "collective/all_reduce/slab_layout.h"
#include "collective/all_reduce/wht6.h"

namespace coprime {
namespace {

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int64_t kMaxFusedRows = 512;

// From where a rank's W - 1 incoming vectors cost more than the second step of a two-shot. Derived from the link's rate
// and one more flight: 0.8 MiB at three ranks, 350 KiB at four, a little earlier with each rank more.
int64_t two_shot_from(int world) {
  switch (world) {
    case 2:
      return 0;
    case 3:
      return 832 * kKiB;
    case 4:
      return 352 * kKiB;
    default:
      return 256 * kKiB;
  }
}

std::string types_text(const std::vector<DType>& types) {
  std::vector<std::string_view> names;
  for (const DType type : types) names.push_back(dtype_name(type));
  return fmt::format("{}", fmt::join(names, ", "));
}

// Why the row does not take the call; empty when it does.
std::string objection(const AllReduceLimits& limits, const AllReduceRow& row, const AllReduceCall& call) {
  const int64_t bytes = call.bytes();
  if (!limits.peer_access) return "some pair of ranks does not reach each other's memory";
  if (!call.row.empty() && call.row != row.name) return fmt::format("the call asks for {}", call.row);
  if (!row.exact && call.row != row.name) return "it loses bits, and the call does not ask for it by name";
  if (limits.world < row.min_world || limits.world > row.max_world)
    return fmt::format("{} ranks; it takes {} to {}", limits.world, row.min_world, row.max_world);
  if (std::ranges::find(row.types, call.type) == row.types.end())
    return fmt::format("{}; it takes {}", dtype_name(call.type), types_text(row.types));
  const bool fused = row.method == AllReduceMethod::kPushNormQuant;
  if (fused && !call.norm_quant) return "no norm follows";
  if (bytes == 0 || bytes % 16 != 0) return fmt::format("{} bytes are no multiple of 16", bytes);
  if (call.elements % row.elements_multiple != 0)
    return fmt::format("{} elements are no multiple of {}", call.elements, row.elements_multiple);
  if (bytes < row.min_bytes) return fmt::format("{} bytes; it begins at {}", bytes, row.min_bytes);
  if (fused && (!norm_takes(call.columns) || call.rows * call.columns != call.elements || call.rows > kMaxFusedRows)) {
    return fmt::format("{} rows of {} columns; it takes up to {} rows of up to {} columns, in eights", call.rows,
                       call.columns, kMaxFusedRows, kMaxNormColumns);
  }
  const auto above = [&](int64_t most) { return fmt::format("{} bytes; here it ends at {}", bytes, most); };
  switch (row.method) {
    case AllReduceMethod::kPushNormQuant:
      return bytes > limits.push_bytes ? above(limits.push_bytes) : "";
    case AllReduceMethod::kPush:
      if (limits.two_shot_bytes > 0 && bytes >= limits.two_shot_bytes) return above(limits.two_shot_bytes - 1);
      return bytes > limits.push_bytes ? above(limits.push_bytes) : "";
    case AllReduceMethod::kTwoShot:
      if (bytes < limits.two_shot_bytes)
        return fmt::format("{} bytes; here it begins at {}", bytes, limits.two_shot_bytes);
      return bytes > limits.push_bytes ? above(limits.push_bytes) : "";
    case AllReduceMethod::kFlags:
      return bytes > limits.exact_bytes ? above(limits.exact_bytes) : "";
    case AllReduceMethod::kWht6:
      if (limits.lossy_bytes == 0) return "the slowest link is not known to be fast enough for it";
      return bytes > limits.lossy_bytes ? above(limits.lossy_bytes) : "";
  }
  return "";
}

}  // namespace

AllReduceLimits all_reduce_limits(int world, bool peer_access, double slowest_link_gb_s, int64_t lossy_slot_bytes) {
  COPRIME_CHECK(world >= 2 && world <= kMaxGpuRanks, "{} ranks", world);
  const bool fast = slowest_link_gb_s >= kFastLink;
  AllReduceLimits limits{.world = world, .peer_access = peer_access};
  limits.exact_bytes = world == 2 ? 49152 * kKiB : fast ? 4096 * kKiB : 2048 * kKiB;
  limits.lossy_bytes = world == 2 || fast ? lossy_slot_bytes : 0;
  limits.push_bytes = 2 * kMiB;
  limits.two_shot_bytes = two_shot_from(world);
  return limits;
}

int64_t slot_bytes(const AllReduceLimits& limits) {
  const int64_t most = std::max(limits.exact_bytes, limits.lossy_bytes);
  return (most + kFlagBlockBytes - 1) / kFlagBlockBytes * kFlagBlockBytes;
}

const std::vector<AllReduceRow>& all_reduce_rows() {
  static const std::vector<AllReduceRow> rows = {
      {"push_norm_quant", AllReduceMethod::kPushNormQuant, true, 2, 8, {DType::kBF16}, 8, 0},
      {"push", AllReduceMethod::kPush, true, 2, 8, {DType::kBF16, DType::kF16, DType::kF32}, 1, 0},
      {"two_shot", AllReduceMethod::kTwoShot, true, 3, 8, {DType::kBF16, DType::kF16, DType::kF32}, 1, 16 * kKiB},
      {"flags", AllReduceMethod::kFlags, true, 2, 8, {DType::kBF16, DType::kF16, DType::kF32}, 1, 0},
      {"wht6", AllReduceMethod::kWht6, false, 2, 8, {DType::kBF16, DType::kF16}, kWht6Group, 128 * kKiB},
  };
  return rows;
}

AllReduceChoice choose_all_reduce(const AllReduceLimits& limits, const AllReduceCall& call) {
  AllReduceChoice choice;
  for (const AllReduceRow& row : all_reduce_rows()) {
    const std::string why = objection(limits, row, call);
    if (why.empty()) {
      choice.row = &row;
      return choice;
    }
    choice.reasons.push_back(fmt::format("{}: {}", row.name, why));
  }
  return choice;
}

}  // namespace coprime
