#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/error.h"

namespace coprime {
namespace {

[[noreturn]] void cannot_write(const std::filesystem::path& path, int error) {
  fail(ErrorKind::kModel, "{}: cannot be written: {}: name another file", path.string(), errno_text(error));
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& target)
    : target_(target), path_(fmt::format("{}.{}.partial", target.string(), ::getpid())) {
  check_output(target);
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd_) cannot_write(target, errno);
}

OutputFile::~OutputFile() {
  if (!path_.empty() && fd_) ::unlink(path_.c_str());
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) cannot_write(target_, errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) cannot_write(target_, errno);
    bytes = bytes.subspan(static_cast<size_t>(done));
    offset += static_cast<uint64_t>(done);
  }
}

void OutputFile::finish() {
  // Some file systems tell only now that they are full.
  if (::fsync(fd_.get()) != 0 || ::rename(path_.c_str(), target_.c_str()) != 0) cannot_write(target_, errno);
  path_.clear();
}

void check_output(const std::filesystem::path& path) {
  const auto status = std::filesystem::symlink_status(path);
  // A rename would put a file in the place of a device or a link.
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    fail(ErrorKind::kModel, "{}: is there and is no regular file: name another file to write", path.string());
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (!std::filesystem::is_directory(folder))
    fail(ErrorKind::kModel, "{}: there is no folder {}: make it, or name another file", path.string(), folder.string());
  if (::access(folder.c_str(), W_OK) != 0) cannot_write(path, errno);
}

void write_output(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts) {
  OutputFile file(path);
  for (const std::span<const std::byte> part : parts) file.write(part);
  file.finish();
}

void write_output(const std::filesystem::path& path, std::string_view text) {
  const std::span<const std::byte> part = std::as_bytes(std::span(text));
  write_output(path, {&part, 1});
}

}  // namespace coprime
