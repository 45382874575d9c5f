// GGUF files for tests: written key by key and tensor by tensor, sound or damaged.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"
#include "gguf/gguf_file.h"

namespace coprime {

// A file in memory: many small ones are written in no time.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("test.gguf", MFD_CLOEXEC)), path_(fmt::format("/proc/self/fd/{}", fd_.get())) {}
  const std::filesystem::path& path() const { return path_; }

 private:
  UniqueFd fd_;
  std::filesystem::path path_;
};

class GgufBuilder {
 public:
  template <class T>
  static void put(std::string* to, T value) {
    to->append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  static void put_text(std::string* to, std::string_view text) {
    put(to, static_cast<uint64_t>(text.size()));
    to->append(text);
  }

  // A key with its raw value, type and all.
  GgufBuilder& raw(std::string_view key, GgufType type, std::string_view value) {
    std::string entry;
    put_text(&entry, key);
    put(&entry, static_cast<uint32_t>(type));
    entry.append(value);
    keys_.emplace_back(key, entry);
    return *this;
  }
  template <class T>
  GgufBuilder& scalar(std::string_view key, GgufType type, T value) {
    std::string bytes;
    put(&bytes, value);
    return raw(key, type, bytes);
  }
  GgufBuilder& u32(std::string_view key, uint32_t value) { return scalar(key, GgufType::kU32, value); }
  GgufBuilder& f32(std::string_view key, float value) { return scalar(key, GgufType::kF32, value); }
  GgufBuilder& boolean(std::string_view key, bool value) { return scalar(key, GgufType::kBool, uint8_t{value}); }
  GgufBuilder& text(std::string_view key, std::string_view value) {
    std::string bytes;
    put_text(&bytes, value);
    return raw(key, GgufType::kString, bytes);
  }
  GgufBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string bytes;
    put(&bytes, static_cast<uint32_t>(GgufType::kString));
    put(&bytes, static_cast<uint64_t>(values.size()));
    for (const std::string& value : values) put_text(&bytes, value);
    return raw(key, GgufType::kArray, bytes);
  }
  GgufBuilder& integers(std::string_view key, const std::vector<int32_t>& values) {
    std::string bytes;
    put(&bytes, static_cast<uint32_t>(GgufType::kI32));
    put(&bytes, static_cast<uint64_t>(values.size()));
    for (int32_t value : values) put(&bytes, value);
    return raw(key, GgufType::kArray, bytes);
  }
  GgufBuilder& without(std::string_view key) {
    std::erase_if(keys_, [&](const auto& entry) { return entry.first == key; });
    return *this;
  }

  // `dims` as the file has them, contiguous axis first; data goes where the tensors before it end.
  GgufBuilder& tensor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type, std::string_view bytes) {
    tensors_.push_back({std::string(name), dims, type, data_.size()});
    data_.append(bytes);
    data_.resize((data_.size() + alignment_ - 1) / alignment_ * alignment_);
    return *this;
  }
  GgufBuilder& without_tensor(std::string_view name) {  // the last one only: the others' data would have a hole
    if (tensors_.back().name == name) data_.resize(tensors_.back().offset), tensors_.pop_back();
    return *this;
  }
  // Places the last tensor elsewhere.
  GgufBuilder& offset(uint64_t offset) {
    tensors_.back().offset = offset;
    return *this;
  }
  GgufBuilder& align(uint64_t alignment) {
    alignment_ = alignment;
    return u32("general.alignment", static_cast<uint32_t>(alignment));
  }

  std::string header(uint32_t version = 3) const {
    std::string file = "GGUF";
    put(&file, version);
    put(&file, static_cast<uint64_t>(tensors_.size()));
    put(&file, static_cast<uint64_t>(keys_.size()));
    for (const auto& [key, entry] : keys_) file += entry;
    for (const Tensor& tensor : tensors_) {
      put_text(&file, tensor.name);
      put(&file, static_cast<uint32_t>(tensor.dims.size()));
      for (uint64_t dim : tensor.dims) put(&file, dim);
      put(&file, tensor.type);
      put(&file, tensor.offset);
    }
    return file;
  }
  std::string bytes(uint32_t version = 3) const {
    std::string file = header(version);
    file.resize((file.size() + alignment_ - 1) / alignment_ * alignment_);
    return file + data_;
  }
  void write(const std::filesystem::path& path) const {
    const std::string file = bytes();
    std::ofstream(path, std::ios::binary).write(file.data(), static_cast<std::streamsize>(file.size()));
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    uint64_t offset;
  };
  std::vector<std::pair<std::string, std::string>> keys_;
  std::vector<Tensor> tensors_;
  std::string data_;
  uint64_t alignment_ = 32;
};

}  // namespace coprime
