#include "base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace coprime {

InputFile InputFile::open(const std::filesystem::path& path) {
  InputFile file;
  file.path_ = path;
  file.fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file.fd_ || ::fstat(file.fd_.get(), &status) != 0) {
    const int error = errno;
    const bool absent = error == ENOENT || error == ENOTDIR;
    fail(ErrorKind::kModel, "{}: {}: {}", path.string(), errno_text(error),
         absent ? "check the path, or fetch the file" : "make it readable for this user");
  }
  if (!S_ISREG(status.st_mode))
    fail(ErrorKind::kModel, "{}: not a regular file: expected the file itself, and no folder or pipe", path.string());
  file.bytes_ = static_cast<uint64_t>(status.st_size);
  return file;
}

void InputFile::read(uint64_t offset, std::span<std::byte> into) const {
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
