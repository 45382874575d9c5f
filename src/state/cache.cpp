#include "state/cache.h"

#include "base/error.h"

namespace coprime {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

}  // namespace

int64_t CacheShape::state_bytes() const {
  return linear_layers == 0 ? 0 : (recurrent_elements() + convolution_elements()) * slots * linear_layers * kFloatBytes;
}

Cache::Cache(const CacheShape& shape)
    : shape_(shape), kv_(static_cast<size_t>(shape.kv_bytes())), page_lists_(static_cast<size_t>(shape.sequences)) {
  if (shape.linear_layers > 0) {
    const int64_t states = int64_t{shape.slots} * shape.linear_layers;
    recurrent_ = Buffer(static_cast<size_t>(shape.recurrent_elements() * states * kFloatBytes));
    convolution_ = Buffer(static_cast<size_t>(shape.convolution_elements() * states * kFloatBytes));
  }
  for (auto& list : page_lists_) list.reserve(static_cast<size_t>(shape.pages));
}

KvView Cache::kv(int attention_layer) const {
  return {kv_.data() + attention_layer * shape_.pages * shape_.page_bytes(), shape_.kv_type, shape_.kv_heads,
          shape_.head_dim};
}

StateView Cache::state(int linear_layer) const {
  const int64_t recurrent = shape_.recurrent_elements(), convolution = shape_.convolution_elements();
  const int64_t first = int64_t{linear_layer} * shape_.slots;
  return {recurrent_.as<float>() + first * recurrent, convolution_.as<float>() + first * convolution, recurrent,
          convolution};
}

void Cache::set_pages(int sequence, int first, std::span<const int32_t> pages) {
  if (sequence < 0 || sequence >= shape_.sequences)
    fail(ErrorKind::kInternal, "sequence {} of {}", sequence, shape_.sequences);
  auto& list = page_lists_[static_cast<size_t>(sequence)];
  const size_t end = static_cast<size_t>(first) + pages.size();
  if (first < 0 || static_cast<size_t>(first) > list.size() || end > static_cast<size_t>(shape_.pages)) {
    fail(ErrorKind::kInternal, "pages {}..{} of sequence {}, which has {} of at most {}", first, end, sequence,
         list.size(), shape_.pages);
  }
  for (int32_t page : pages) {
    if (page < 0 || page >= shape_.pages) fail(ErrorKind::kInternal, "page {} of {}", page, shape_.pages);
  }
  list.resize(static_cast<size_t>(first));
  list.insert(list.end(), pages.begin(), pages.end());
}

std::span<const int32_t> Cache::pages(int sequence, int64_t tokens) const {
  const auto& list = page_lists_.at(static_cast<size_t>(sequence));
  const auto count = static_cast<size_t>((tokens + kPageTokens - 1) / kPageTokens);
  if (count > list.size()) {
    fail(ErrorKind::kInternal, "sequence {} has {} pages, and {} tokens need {}", sequence, list.size(), tokens, count);
  }
  return std::span(list).first(count);
}

void Cache::check_slot(int slot) const {
  if (slot < -1 || slot >= shape_.slots) fail(ErrorKind::kInternal, "state slot {} of {}", slot, shape_.slots);
}

void Cache::forget_sequences() {
  for (auto& list : page_lists_) list.clear();
}

}  // namespace coprime
