// The scratch memory of one PE: a bump arena of tensors. What was allocated within a scope is recycled at its end, but
// for what was kept, which moves to where the scope began. A recycled slot gets a new generation, so that a stale
// Tensor is found out. In data mode the arena has memory.
//
// A machine keeps a Use with each tensor: who makes it, who still reads or writes it. New bytes inherit the Use of
// those that had been recycled there: Use needs `void inherit(const Use&)`.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "tl/tensor.h"

namespace coprime::tl {

template <class Use>
class Arena {
 public:
  struct Slot {
    uint32_t generation = 1;
    uint32_t offset = 0, bytes = 0;
    bool kept = false, arriving = false;
    Use use;
  };

  Arena(int64_t capacity, bool with_data)
      : capacity_(capacity),
        data_(with_data ? std::make_unique<std::byte[]>(static_cast<size_t>(capacity)) : nullptr) {}

  // No tensor (false) if it does not fit.
  Tensor allocate(int64_t rows, int64_t columns, Type type) {
    Tensor tensor{0, 0, static_cast<int32_t>(rows), static_cast<int32_t>(columns), type};
    const int64_t bytes = (tensor.bytes() + 3) & ~int64_t{3};
    if (top_ + bytes > capacity_) return tensor;
    if (free_.empty()) free_.push_back(static_cast<uint32_t>(slots_.size())), slots_.emplace_back();
    tensor.slot = free_.back();
    free_.pop_back();
    Slot& slot = slots_[tensor.slot];
    tensor.generation = slot.generation;
    slot.offset = static_cast<uint32_t>(top_), slot.bytes = static_cast<uint32_t>(bytes);
    slot.kept = slot.arriving = false, slot.use = {};
    top_ += bytes;
    high_water_ = top_ > high_water_ ? top_ : high_water_;
    while (!recycled_.empty() && recycled_.back().begin < top_) {
      slot.use.inherit(recycled_.back().use);
      if (recycled_.back().end > top_) break;
      recycled_.pop_back();
    }
    order_.push_back(tensor.slot);
    return tensor;
  }

  bool alive(const Tensor& tensor) const {
    return tensor.slot < slots_.size() && slots_[tensor.slot].generation == tensor.generation;
  }
  Use& use(const Tensor& tensor) { return slots_[tensor.slot].use; }
  std::byte* data(const Tensor& tensor) { return data_.get() + slots_[tensor.slot].offset; }
  bool has_data() const { return data_ != nullptr; }

  // Whether a receive into it is under way.
  bool arriving(const Tensor& tensor) const { return slots_[tensor.slot].arriving; }
  void set_arriving(const Tensor& tensor, bool arriving) { slots_[tensor.slot].arriving = arriving; }

  void keep(const Tensor& tensor) { slots_[tensor.slot].kept = true; }

  struct Mark {
    size_t slots;
    int64_t top;
  };
  Mark mark() const { return {order_.size(), top_}; }

  // Calls check(use) for each tensor that goes.
  template <class Check>
  void recycle(Mark mark, const Check& check) {
    for (size_t i = order_.size(); i > mark.slots; --i) {
      Slot& slot = slots_[order_[i - 1]];
      if (!slot.kept) check(slot.use);
      recycled_.push_back({slot.offset, int64_t{slot.offset} + slot.bytes, slot.use});
    }
    size_t kept = mark.slots;
    top_ = mark.top;
    for (size_t i = mark.slots; i < order_.size(); ++i) {
      Slot& slot = slots_[order_[i]];
      if (!slot.kept) {
        ++slot.generation;
        free_.push_back(order_[i]);
        continue;
      }
      if (data_) std::memmove(data_.get() + top_, data_.get() + slot.offset, slot.bytes);
      slot.offset = static_cast<uint32_t>(top_), slot.kept = false;
      top_ += slot.bytes;
      order_[kept++] = order_[i];
    }
    order_.resize(kept);
    while (!recycled_.empty() && recycled_.back().end <= top_) recycled_.pop_back();
  }

  // Calls see(offset, bytes, use) for all tensors, then for what was recycled and not yet used again.
  template <class See>
  void visit(const See& see) const {
    for (const uint32_t slot : order_) see(slots_[slot].offset, slots_[slot].bytes, slots_[slot].use);
    for (const Recycled& one : recycled_) see(one.begin, one.end - one.begin, one.use);
  }

  int64_t capacity() const { return capacity_; }
  int64_t used() const { return top_; }
  int64_t high_water() const { return high_water_; }

 private:
  struct Recycled {
    int64_t begin, end;
    Use use;
  };

  int64_t capacity_, top_ = 0, high_water_ = 0;
  std::unique_ptr<std::byte[]> data_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_, order_;  // order_: slots in use, by address
  std::vector<Recycled> recycled_;      // by address, the lowest at the back
};

}  // namespace coprime::tl
