#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/output_file.h"
#include "checkpoint/safetensors.h"

namespace coprime {
namespace {

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

  std::vector<std::span<const std::byte>> parts{std::as_bytes(std::span(&header_bytes, 1)),
                                                std::as_bytes(std::span(text))};
  for (const TensorToWrite* tensor : order) parts.push_back(tensor->bytes);
  write_output(path, parts);
}

}  // namespace coprime
