#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace coprime {
namespace {

void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(ErrorKind::kModel, "{}: cannot write: {}", path.string(), errno_text(errno));
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

// Unlinks a file that was not renamed away.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target)
      : path_(fmt::format("{}.{}.partial", target.string(), ::getpid())),
        fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (!fd_) fail(ErrorKind::kModel, "{}: cannot create: {}", path_.string(), errno_text(errno));
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (!path_.empty()) ::unlink(path_.c_str());
  }

  void write(std::span<const std::byte> bytes) { write_all(fd_.get(), bytes, path_); }
  void rename_to(const std::filesystem::path& target) {
    if (::fsync(fd_.get()) != 0 && errno != EINVAL) {
      fail(ErrorKind::kModel, "{}: cannot write: {}", path_.string(), errno_text(errno));
    }
    if (::rename(path_.c_str(), target.c_str()) != 0) {
      fail(ErrorKind::kModel, "{}: cannot replace it: {}", target.string(), errno_text(errno));
    }
    path_.clear();
  }

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
};

// Wide types first, so that every tensor stands at a multiple of its element's size.
std::vector<const TensorToWrite*> in_file_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) order.push_back(&tensor);
  std::ranges::sort(order, [](const TensorToWrite* a, const TensorToWrite* b) {
    return std::pair(-dtype_bytes(a->type), a->name) < std::pair(-dtype_bytes(b->type), b->name);
  });
  return order;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors) {
  // A rename would put a file in the place of a device or a link.
  const auto status = std::filesystem::symlink_status(path);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    fail(ErrorKind::kModel, "{}: is there and is no regular file: name another file to write", path.string());
  }
  const auto order = in_file_order(tensors);
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const TensorToWrite* tensor : order) {
    const int64_t count = std::accumulate(tensor->shape.begin(), tensor->shape.end(), int64_t{1}, std::multiplies<>());
    const uint64_t bytes = static_cast<uint64_t>(count) * static_cast<uint64_t>(dtype_bytes(tensor->type));
    COPRIME_CHECK(dtype_bytes(tensor->type) > 0 && bytes == tensor->bytes.size(), "{}: {} bytes for [{}] of {}",
                  tensor->name, tensor->bytes.size(), fmt::join(tensor->shape, ", "), dtype_name(tensor->type));
    COPRIME_CHECK(!header.contains(tensor->name), "two tensors {}", tensor->name);
    header[tensor->name] = {
        {"dtype", dtype_name(tensor->type)}, {"shape", tensor->shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = text.size();

  TemporaryFile file(path);
  file.write(std::as_bytes(std::span(&header_bytes, 1)));
  file.write(std::as_bytes(std::span(text)));
  for (const TensorToWrite* tensor : order) file.write(tensor->bytes);
  file.rename_to(path);
}

}  // namespace coprime
