// Zeroed anonymous memory, aligned to a cache line, given back by the destructor. Pages are committed when first
// touched.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace coprime {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);  // Error(kInternal) when the system gives none
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapping_(std::move(other.mapping_)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapping_, other.mapping_);
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
  friend class BufferArena;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<const Buffer> mapping_;  // of many buffers; null: this one's own
};

// Buffers that stand side by side in few large mappings. Memory is mapped by huge pages where there is much of it in
// one place: a matrix of half a megabyte by itself would be read through a hundred small ones, which costs a quarter of
// the speed of a stream.
class BufferArena {
 public:
  // Zeroed, as a Buffer of its own; what it stands in stays as long as the last of its buffers.
  Buffer take(size_t bytes);

 private:
  std::shared_ptr<const Buffer> mapping_;
  size_t used_ = 0;
};

}  // namespace coprime
