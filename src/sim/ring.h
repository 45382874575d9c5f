// A queue in one array that grows and never shrinks, so that a running simulation allocates nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace coprime::sim {

template <class T>
class Ring {
 public:
  bool empty() const { return begin_ == end_; }
  size_t size() const { return end_ - begin_; }
  T& operator[](size_t i) { return items_[(begin_ + i) & mask_]; }
  const T& operator[](size_t i) const { return items_[(begin_ + i) & mask_]; }
  T& front() { return items_[begin_ & mask_]; }
  T& back() { return items_[(end_ - 1) & mask_]; }
  const T& front() const { return items_[begin_ & mask_]; }

  T& push(T item) {
    if (size() == capacity()) grow();
    return items_[end_++ & mask_] = std::move(item);
  }
  void pop() { ++begin_; }

 private:
  size_t capacity() const { return items_ ? mask_ + 1 : 0; }
  void grow() {
    const size_t count = size(), larger = capacity() ? capacity() * 2 : 4;
    auto items = std::make_unique<T[]>(larger);
    for (size_t i = 0; i < count; ++i) items[i] = std::move((*this)[i]);
    items_ = std::move(items);
    begin_ = 0, end_ = count, mask_ = larger - 1;
  }

  std::unique_ptr<T[]> items_;
  size_t begin_ = 0, end_ = 0, mask_ = 0;
};

}  // namespace coprime::sim
