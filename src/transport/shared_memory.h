// A piece of memory that the processes of one world share: an anonymous file (memfd), so that nothing is left behind
// whatever dies. All of it is allocated when it is made and its size is sealed, so that no later access can fault for
// want of memory or because a peer cut the file.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "base/unique_fd.h"

namespace coprime {

class SharedMemory {
 public:
  // Zeroed. `what` names it in errors ("the shared window"), `advice` ends them ("use fewer ranks"). Error(kUsage) when
  // the system cannot give as much. The descriptor is closed by exec unless the caller clears FD_CLOEXEC in the child.
  static SharedMemory create(std::string_view what, size_t bytes, std::string_view advice);

  // The memory behind a descriptor that create() made, maybe in another process. Error(kLink) when it is anything else.
  static SharedMemory attach(std::string_view what, UniqueFd fd);

  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept
      : fd_(std::move(other.fd_)), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  int fd() const { return fd_.get(); }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  SharedMemory(UniqueFd fd, std::byte* data, size_t bytes) : fd_(std::move(fd)), data_(data), bytes_(bytes) {}
  static SharedMemory map(std::string_view what, UniqueFd fd, size_t bytes, std::string_view advice);

  UniqueFd fd_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace coprime
