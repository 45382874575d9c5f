#include "geometry/held_columns.h"

#include <algorithm>

namespace coprime {
namespace {

int64_t block_end(int64_t end, int64_t block) { return (end + block - 1) / block * block; }

}  // namespace

HeldColumns hold_whole_blocks(const AxisMap& owned, int64_t block) {
  const auto is_whole = [block](const Span& span) {
    return span.global % block == 0 && span.local % block == 0 && span.count % block == 0;
  };
  if (owned.extent % block == 0 && std::ranges::all_of(owned.real, is_whole)) return {owned, std::nullopt};

  HeldColumns columns;
  columns.inputs.emplace().columns = owned.extent;
  std::vector<Span> by_place = owned.real;
  std::ranges::sort(by_place, {}, &Span::global);
  std::vector<Span>& held = columns.held.real;
  std::vector<ColumnRun>& runs = columns.inputs->runs;
  for (const Span& span : by_place) {
    const int64_t begin = span.global / block * block, end = block_end(span.global + span.count, block);
    if (held.empty() || begin > held.back().global + held.back().count) {
      held.push_back({begin, columns.held.extent, end - begin});
    } else {
      held.back().count = std::max(held.back().count, end - held.back().global);
    }
    columns.held.extent = held.back().local + held.back().count;
    runs.push_back({span.local, held.back().local + span.global - held.back().global, span.count});
  }
  return columns;
}

}  // namespace coprime
