// Checkpoints for tests: a folder of its own for each, and random, sparse or damaged files in it.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"

namespace coprime {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "coprime-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// A safetensors file of this header over `data_bytes` of zeros (a hole of the file system).
inline void write_sparse(const std::filesystem::path& path, const std::string& header, uint64_t data_bytes) {
  const uint64_t size = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &size, 8);
  write_bytes(path, text + header);
  std::filesystem::resize_file(path, 8 + size + data_bytes);
}

struct NamedTensor {
  DType type = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<std::byte> bytes;
};
using TensorMap = std::map<std::string, NamedTensor>;

inline int64_t count_of(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Every tensor that the shape's rules predict, of a random type, with random bytes.
inline TensorMap random_tensors(const ModelShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  const ShardPlan plan(shape, {});
  TensorMap tensors;
  for (const Rule& rule : plan.rules()) {
    for (int layer = -1; layer < shape.layers; ++layer) {
      if (!plan.applies(rule, layer)) continue;
      constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
      NamedTensor tensor{kTypes[random() % 3], rule.shape, {}};
      tensor.bytes.resize(static_cast<size_t>(count_of(rule.shape) * dtype_bytes(tensor.type)));
      for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random());
      tensors[plan.tensor_name(rule, layer)] = std::move(tensor);
    }
  }
  return tensors;
}

inline void write_tensors(const std::filesystem::path& path, const TensorMap& tensors) {
  std::vector<TensorToWrite> list;
  for (const auto& [name, tensor] : tensors) list.push_back({name, tensor.type, tensor.shape, tensor.bytes});
  write_safetensors(path, list);
}

// The message of the Error(kModel) that `action` throws; empty if none.
template <class F>
std::string model_error(F&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::kModel && std::string(error.what()).find('\n') == std::string::npos
               ? error.what()
               : std::string("wrong kind, or many lines: ") + error.what();
  }
  return "";
}

}  // namespace coprime
