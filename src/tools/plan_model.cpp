#include "tools/plan_model.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "base/error.h"
#include "geometry/named_shapes.h"
#include "geometry/quantization.h"
#include "json/json.h"
#include "tools/shard_weights.h"

namespace coprime {
namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;

// Its name is that of the type with the most bytes; bits are the mean of all matrices.
PlanFormat format_of(const GgufFile& file, int64_t mlp_unit) {
  std::map<std::string_view, double> bytes;
  double all_bytes = 0, elements = 0;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.shape.size() < 2) continue;
    const BlockShape block = block_shape(tensor.type);
    double count = 1;
    for (const int64_t extent : tensor.shape) count *= static_cast<double>(extent);
    bytes[dtype_name(tensor.type)] += count / block.elements * block.bytes;
    all_bytes += count / block.elements * block.bytes;
    elements += count;
  }
  PlanFormat format{.mlp_unit = mlp_unit};
  double most = -1;
  for (const auto& [name, size] : bytes) {
    if (size > most) most = size, format.name = format.title = name;
  }
  if (elements > 0) format.bits = format.other_bits = 8 * all_bytes / elements;
  return format;
}

// Of the MLP's matrices, most of a model.
std::string_view format_name(const Quantization& quantization) {
  for (const std::string_view module :
       {"model.layers.0.mlp.down_proj", "model.language_model.layers.0.mlp.down_proj"}) {
    const StoredFormat* const stored = quantization.format_of(module);
    if (stored == nullptr) continue;
    return stored->format == WeightFormat::kMxfp4      ? "mxfp4"
           : stored->format == WeightFormat::kFp8Block ? "fp8-block"
                                                       : "fp8-channel";
  }
  return "bf16";
}

// What quantization_config and dtype say; BF16 where they say nothing.
const PlanFormat& format_of(const JsonObject& root) {
  const JsonObject text = root.object("text_config").value_or(root);
  for (const JsonObject* keys : {&root, &text}) {
    const auto quantization = keys->object("quantization_config");
    if (!quantization) continue;
    const std::string method = quantization->string("quant_method").value_or("");
    if (method == "gptq" || method == "awq") return plan_format("int4-128");
    if (method == "mxfp4") return plan_format("mxfp4");  // gpt-oss: its experts alone
    return plan_format(format_name(Quantization::parse(root, text)));
  }
  for (const std::string_view key : {"dtype", "torch_dtype"}) {
    for (const JsonObject* keys : {&root, &text}) {
      const std::string type = keys->string(key).value_or("");
      if (type == "float16") return plan_format("f16");
      if (type == "float32") return plan_format("f32");
    }
  }
  return plan_format("bf16");
}

std::optional<DType> plain_type(const PlanFormat& format) {
  if (format.name == "bf16") return DType::kBF16;
  if (format.name == "f16") return DType::kF16;
  if (format.name == "f32") return DType::kF32;
  return std::nullopt;
}

// Matrices of a quantised checkpoint that stay as they are (embedding, head) are BF16.
std::vector<DType> types_of(const PlanFormat& format) {
  if (const auto type = plain_type(format)) return {*type};
  if (format.name == "mxfp4") return {DType::kMxfp4, DType::kBF16};
  if (format.name == "fp8-block" || format.name == "fp8-channel") return {DType::kFp8, DType::kBF16};
  if (format.name == "q4_k_m") return {DType::kQ4_K, DType::kQ6_K};
  if (format.name == "q5_k_m") return {DType::kQ5_K, DType::kQ6_K};
  for (int i = 0; i < static_cast<int>(DType::kOther); ++i) {
    std::string name(dtype_name(static_cast<DType>(i)));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name == format.name && is_block(static_cast<DType>(i))) return {static_cast<DType>(i)};
  }
  return {};
}

std::vector<DType> types_of(const GgufFile& file) {
  std::vector<DType> types;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.shape.size() >= 2 && std::ranges::find(types, tensor.type) == types.end()) types.push_back(tensor.type);
  }
  std::ranges::sort(types);
  return types;
}

std::string source_of(const PlanFormat& format) {
  return format.table_bits > 0 ? "--format, about: as llama.cpp mixes a dense model's" : "--format";
}

PlanModel of_file(const std::filesystem::path& path, const std::string& format) {
  PlanModel model;
  model.shape = read_model_shape(path);
  model.numbers = numbers_of(*model.shape);
  const GgufFile file = GgufFile::open(path);
  model.format = format_of(file, model.shape->mlp_unit);
  model.types = types_of(file);
  model.format_source = "of the file";
  model.weights = path;
  if (!format.empty())
    fail(ErrorKind::kUsage, "--format {}: {} is a file of {} already: leave the flag away", format, path.string(),
         model.format.title);
  return model;
}

bool has_weights(const std::filesystem::path& folder) {
  std::error_code ignored;
  return std::filesystem::exists(folder / "model.safetensors", ignored) ||
         std::filesystem::exists(folder / "model.safetensors.index.json", ignored);
}

PlanModel of_folder(const std::filesystem::path& folder, const std::string& format) {
  const std::filesystem::path path = folder / "config.json";
  const std::string text = read_text_file(path, kMaxConfigBytes);
  PlanModel model;
  model.numbers = parse_model_numbers(text, path.string());
  if (model.numbers.refusal.empty()) model.shape = parse_model_shape(text, path.string());
  if (format.empty()) {
    const JsonDocument document(text, path.string());
    model.format = format_of(document.root());
    model.format_source = "of the config";
    if (has_weights(folder)) model.weights = folder;
  } else {
    model.format = plan_format(format, model.numbers);
    model.format_source = source_of(model.format);
  }
  if (model.shape) model.shape->mlp_unit = model.format.mlp_unit;
  model.types = types_of(model.format);
  return model;
}

PlanModel of_name(const NamedShape& named, const std::string& format) {
  PlanModel model;
  model.numbers = numbers_of(named);
  if (named.architecture) model.shape = parse_model_shape(config_json(named), std::string(named.name));
  model.format = plan_format(format.empty() ? "bf16" : format, model.numbers);
  model.format_source = format.empty() ? "assumed: --format says another" : source_of(model.format);
  if (model.shape) model.shape->mlp_unit = model.format.mlp_unit;
  model.types = types_of(model.format);
  return model;
}

}  // namespace

PlanModel read_plan_model(const std::string& model, const std::string& format) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored)) return of_file(model, format);
  if (!std::filesystem::exists(model, ignored)) {
    if (const NamedShape* const named = find_named_shape(model)) return of_name(*named, format);
    std::string names;
    for (const NamedShape& shape : named_shapes()) names += (names.empty() ? "" : ", ") + std::string(shape.name);
    fail(ErrorKind::kUsage, "{}: no such folder or file, and no name of a model; names are {}", model, names);
  }
  return of_folder(model, format);
}

std::vector<RankWeights> plan_weights(const PlanModel& model, const PlanOptions& options) {
  if (!model.shape) return {};
  const ShardPlan plan(*model.shape, options);
  if (!model.weights.empty()) return weigh_shards(Checkpoint::open(model.weights), plan);
  if (const auto type = plain_type(model.format)) return weigh_shards(*type, plan);
  return {};
}

}  // namespace coprime
