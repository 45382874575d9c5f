#include "checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace coprime {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path;
  const std::string where = path.string();
  file.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.fd_ || ::fstat(file.fd_.get(), &status) != 0) fail(ErrorKind::kModel, "{}: {}", where, errno_text(errno));
  if (!S_ISREG(status.st_mode)) fail(ErrorKind::kModel, "{}: not a regular file", where);
  const auto file_bytes = static_cast<uint64_t>(status.st_size);
  if (file_bytes < 8) fail(ErrorKind::kModel, "{}: {} bytes; too short for a safetensors file", where, file_bytes);

  uint64_t header_bytes = 0;
  file.read(0, std::as_writable_bytes(std::span(&header_bytes, 1)));
  if (header_bytes > kMaxHeaderBytes || header_bytes > file_bytes - 8) {
    fail(ErrorKind::kModel,
         "{}: a header of {} bytes in a file of {}; expected at most {}; not a safetensors file, or cut short", where,
         header_bytes, file_bytes, std::min(kMaxHeaderBytes, file_bytes - 8));
  }
  std::string header(header_bytes, '\0');
  file.read(8, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{'))
    fail(ErrorKind::kModel, "{}: its header does not start with '{{'; not a safetensors file", where);
  file.tensors_ = parse_safetensors_header(header, file_bytes, where);
  return file;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  for (const TensorInfo& tensor : tensors_) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

void SafetensorsFile::read(uint64_t offset, std::span<std::byte> into) const {
  size_t have = 0;
  while (have < into.size()) {
    const ssize_t got = ::pread(fd_.get(), into.data() + have, into.size() - have, static_cast<off_t>(offset + have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      fail(ErrorKind::kModel, "{}: cannot read at byte {}: {}", path_.string(), offset + have, errno_text(errno));
    if (got == 0) {
      fail(ErrorKind::kModel, "{}: file shrank: expected {} bytes at byte {}, found {}; fetch it again", path_.string(),
           into.size(), offset, have);
    }
    have += static_cast<size_t>(got);
  }
}

}  // namespace coprime
