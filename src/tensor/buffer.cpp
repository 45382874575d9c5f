#include "tensor/buffer.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "base/alignment.h"
#include "base/error.h"

namespace coprime {

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    fail(ErrorKind::kInternal, "no memory for {} MiB ({}): use more ranks or a shorter context", bytes >> 20,
         errno_text(errno));
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes >= 2 * kHugePage) ::madvise(memory, bytes, MADV_HUGEPAGE);  // advice: fewer TLB misses while weights stream
  data_ = static_cast<std::byte*>(memory);
}

Buffer::~Buffer() {
  if (data_ != nullptr && mapping_ == nullptr) ::munmap(data_, bytes_);
}

Buffer BufferArena::take(size_t bytes) {
  constexpr size_t kMappingBytes = size_t{64} << 20;
  if (bytes > kMappingBytes / 4) return Buffer(bytes);
  if (mapping_ == nullptr || bytes > mapping_->size() - used_) {
    mapping_ = std::make_shared<const Buffer>(kMappingBytes);
    used_ = 0;
  }
  Buffer buffer;
  buffer.data_ = mapping_->data() + used_;
  buffer.bytes_ = bytes;
  buffer.mapping_ = mapping_;
  used_ = std::min(round_up(used_ + bytes, kCacheLineBytes), mapping_->size());
  return buffer;
}

}  // namespace coprime
