// Zeroed anonymous memory, aligned to a cache line, given back by the destructor. Pages are committed when first
// touched.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace coprime {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // Error(kInternal) when the system gives none
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Buffer();

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace coprime
