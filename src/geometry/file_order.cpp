#include "geometry/file_order.h"

#include "base/check.h"

namespace coprime {
namespace {

// Elements of a value head, and where the first one begins, along the axis that is tiled.
struct ValueHeads {
  int64_t elements, begin;
};
ValueHeads value_heads(const LinearAttentionShape& linear, TensorId id) {
  switch (id) {
    case TensorId::kInQkv:
    case TensorId::kConv:
      return {linear.value_dim, 2 * int64_t{linear.key_heads} * linear.key_dim};
    case TensorId::kInZ:
    case TensorId::kOut:
      return {linear.value_dim, 0};
    default:
      return {1, 0};
  }
}

}  // namespace

int64_t file_position(const ModelShape& shape, const Rule& rule, FileOrder order, int64_t element) {
  if (order == FileOrder::kRotaryPairs) {
    const int64_t dim = shape.head_dim, head = element / dim, at = element % dim;
    return head * dim + at % (dim / 2) * 2 + at / (dim / 2);
  }
  if (order == FileOrder::kTiledHeads) {
    const LinearAttentionShape& linear = shape.linear;
    const auto [size, begin] = value_heads(linear, rule.id);
    if (element < begin) return element;  // q and k before v
    const int64_t ratio = linear.value_heads / linear.key_heads;
    const int64_t head = (element - begin) / size, at = (element - begin) % size;
    return begin + (head % ratio * linear.key_heads + head / ratio) * size + at;
  }
  return element;
}

AxisMap in_file_order(const ModelShape& shape, const Rule& rule, FileOrder order, const AxisMap& map) {
  if (order == FileOrder::kModel) return map;
  AxisMap result;
  result.extent = map.extent;
  for (const Span& span : map.real) {
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t place = file_position(shape, rule, order, span.global + i), local = span.local + i;
      if (!result.real.empty()) {
        Span& last = result.real.back();
        if (last.global + last.count == place && last.local + last.count == local) {
          ++last.count;
          continue;
        }
      }
      result.real.push_back({place, local, 1});
    }
  }
  COPRIME_CHECK(result.real_count() == map.real_count(), "{} of {} elements", result.real_count(), map.real_count());
  return result;
}

}  // namespace coprime
