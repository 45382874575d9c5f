#include "checkpoint/safetensors.h"

#include <algorithm>

#include "base/error.h"

namespace coprime {
namespace {

constexpr uint64_t kMaxHeaderBytes = 100'000'000;

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.input_ = InputFile::open(path);
  const std::string where = path.string();
  const uint64_t file_bytes = file.input_.bytes();
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

}  // namespace coprime
