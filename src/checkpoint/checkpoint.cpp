#include "checkpoint/checkpoint.h"

#include <map>
#include <unordered_set>

#include "base/error.h"
#include "json/json.h"

namespace coprime {
namespace {

constexpr int64_t kMaxIndexBytes = 64 << 20;

// A name from an index stands for a file of the same folder and nothing else.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name != "." && name != ".." && name.find('/') == name.npos &&
         printable(name) == name;
}

// File name -> the tensors that the index says it holds.
std::map<std::string, std::vector<std::string>> read_index(const std::filesystem::path& path) {
  const JsonDocument document(read_text_file(path, kMaxIndexBytes), path.string());
  const auto weights = document.root().object("weight_map");
  if (!weights) fail(ErrorKind::kModel, "{}: no weight_map; expected tensor names with their files", path.string());
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& field : weights->raw()) {
    std::string_view file;
    if (field.value.get(file) != simdjson::SUCCESS || !is_plain_name(file)) {
      fail(ErrorKind::kModel, "{} is {}; expected the name of a file beside the index",
           weights->path(printable(field.key)), describe(field.value));
    }
    files[std::string(file)].emplace_back(field.key);
  }
  return files;
}

}  // namespace

Checkpoint Checkpoint::open(const std::filesystem::path& model) {
  Checkpoint checkpoint;
  const auto single = model / "model.safetensors", index = model / "model.safetensors.index.json";
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored)) {
    checkpoint.gguf_.emplace(GgufFile::open(model));
    return checkpoint;
  }
  if (std::filesystem::exists(single, ignored)) {
    checkpoint.files_.push_back(SafetensorsFile::open(single));
    return checkpoint;
  }
  if (!std::filesystem::exists(index, ignored)) {
    fail(
        ErrorKind::kModel,
        "{}: neither model.safetensors nor model.safetensors.index.json; expected a folder with either, or a GGUF file",
        model.string());
  }
  std::unordered_set<std::string> seen;
  for (const auto& [name, tensors] : read_index(index)) {
    const SafetensorsFile& file = checkpoint.files_.emplace_back(SafetensorsFile::open(model / name));
    std::unordered_set<std::string_view> held;
    for (const TensorInfo& tensor : file.tensors()) {
      held.insert(tensor.name);
      if (!seen.insert(tensor.name).second) {
        fail(ErrorKind::kModel, "{}: tensor {} stands in an earlier file, too", file.path().string(),
             printable(tensor.name));
      }
    }
    for (const std::string& tensor : tensors) {
      if (!held.contains(tensor)) {
        fail(ErrorKind::kModel, "{}: tensor {} is missing; the index says that it is here; fetch the file again",
             file.path().string(), printable(tensor));
      }
    }
  }
  return checkpoint;
}

std::vector<Checkpoint::Located> Checkpoint::tensors() const {
  std::vector<Located> all;
  for (const SafetensorsFile& file : files_) {
    for (const TensorInfo& tensor : file.tensors()) all.push_back({&file.input(), &tensor});
  }
  if (gguf_) {
    for (const TensorInfo& tensor : gguf_->tensors()) all.push_back({&gguf_->input(), &tensor});
  }
  return all;
}

}  // namespace coprime
