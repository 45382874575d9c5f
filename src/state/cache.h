// One rank's memory of the sequences: pages of keys and values for each attention layer, slots of recurrent and
// convolution state for each linear layer, and the page list of each sequence. The front decides which pages and slots
// a sequence has; this refuses what lies outside the pool.
//
// Memory is committed by the system when it is first written, so an unused page costs nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "tensor/buffer.h"
#include "tensor/sequence.h"

namespace coprime {

struct CacheShape {
  int attention_layers = 0, kv_heads = 0, head_dim = 0;
  DType kv_type = DType::kF32;
  int pages = 0;  // of kPageTokens tokens, shared by all sequences; every attention layer has as many
  int linear_layers = 0;
  DeltaNetShape linear;
  int slots = 0;  // states, shared by all sequences
  int sequences = 1;

  int64_t page_bytes() const { return KvView{nullptr, kv_type, kv_heads, head_dim}.page_bytes(); }
  int64_t recurrent_elements() const { return int64_t{linear.value_heads} * linear.key_dim * linear.value_dim; }
  int64_t convolution_elements() const { return int64_t{linear.taps - 1} * linear.channels(); }
  int64_t kv_bytes() const { return page_bytes() * pages * attention_layers; }
  int64_t state_bytes() const;
};

class Cache {
 public:
  explicit Cache(const CacheShape& shape);

  const CacheShape& shape() const { return shape_; }
  KvView kv(int attention_layer) const;
  StateView state(int linear_layer) const;

  // Sets a sequence's page list from index `first` on; what stood behind is forgotten. Error(kInternal) for a sequence
  // or page outside the pool, or a gap.
  void set_pages(int sequence, int first, std::span<const int32_t> pages);
  // The pages that hold `tokens` tokens. Error(kInternal) if there are not as many.
  std::span<const int32_t> pages(int sequence, int64_t tokens) const;
  void check_slot(int slot) const;
  // All page lists become empty.
  void forget_sequences();

 private:
  CacheShape shape_;
  Buffer kv_, recurrent_, convolution_;
  std::vector<std::vector<int32_t>> page_lists_;  // by sequence
};

}  // namespace coprime
