// Memory of a GPU, and host memory that a GPU reaches.
#pragma once

#include <cstddef>
#include <utility>

#include "cuda/status.h"

namespace coprime {

// Plain cudaMalloc on the current device: what IPC handles can be made of.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status != cudaSuccess) {
      fail(ErrorKind::kUsage, "the GPU has no {} MiB left ({}): use less memory on it", bytes >> 20,
           cudaGetErrorString(status));
    }
    data_ = static_cast<std::byte*>(data);
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() { cudaFree(data_); }

  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// One T in pinned host memory, zeroed, at the same address for host and GPU.
template <class T>
class PinnedValue {
 public:
  PinnedValue() {
    void* data = nullptr;
    check_cuda(cudaHostAlloc(&data, sizeof(T), cudaHostAllocPortable | cudaHostAllocMapped), "pin host memory");
    value_ = new (data) T{};
  }
  PinnedValue(const PinnedValue&) = delete;
  ~PinnedValue() { cudaFreeHost(value_); }

  T* get() const { return value_; }

 private:
  T* value_;
};

}  // namespace coprime
