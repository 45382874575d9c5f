#include "geometry/quantization.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace coprime {
namespace {

constexpr StoredPart kBlockScales = {.suffix = ".weight_scale",
                                     .types = {DType::kF32, DType::kBF16},
                                     .rows = kFp8BlockSize,
                                     .columns = kFp8BlockSize,
                                     .partial = true};

constexpr StoredPart with_suffix(StoredPart part, std::string_view suffix) {
  part.suffix = suffix;
  return part;
}

constexpr StoredPart kNibbles = {.suffix = ".weight", .types = {DType::kU8, DType::kU8}, .columns = 2};
constexpr StoredPart kExponents = {
    .suffix = ".weight_scale", .types = {DType::kU8, DType::kF8E8M0}, .columns = kMxBlock};
constexpr StoredPart kBytes = {.suffix = ".weight", .types = {DType::kF8E4M3, DType::kF8E4M3}};

enum FormatIndex : size_t { kQuarkMxfp4, kPackedMxfp4, kBlocksMxfp4, kFp8ScaleInv, kFp8Scale, kFp8Rows, kFormats };

constexpr std::array<StoredFormat, kFormats> kStored = {{
    {"MXFP4 (Quark)", WeightFormat::kMxfp4, kNibbles, kExponents},
    {"MXFP4 (compressed-tensors)", WeightFormat::kMxfp4, with_suffix(kNibbles, ".weight_packed"), kExponents},
    {"MXFP4 (blocks)",
     WeightFormat::kMxfp4,
     {.suffix = ".weight_blocks", .types = {DType::kU8, DType::kU8}, .columns = 2, .inner = kMxBlock / 2},
     with_suffix(kExponents, ".weight_scales")},
    {"FP8 128x128 (weight_scale_inv)", WeightFormat::kFp8Block, kBytes, with_suffix(kBlockScales, ".weight_scale_inv")},
    {"FP8 128x128 (weight_scale)", WeightFormat::kFp8Block, kBytes, kBlockScales},
    {"FP8 per channel",
     WeightFormat::kFp8Channel,
     kBytes,
     {.suffix = ".weight_scale", .types = {DType::kF32, DType::kBF16}, .columns = 0}},
}};

constexpr std::string_view kSupported =
    "MXFP4 (Quark, compressed-tensors, blocks), FP8 e4m3 with scales of 128 x 128 or per channel";

}  // namespace

std::span<const StoredFormat> stored_formats() { return kStored; }
const StoredFormat& quark_mxfp4() { return kStored[kQuarkMxfp4]; }
const StoredFormat& fp8_block() { return kStored[kFp8ScaleInv]; }
const StoredFormat& fp8_channel() { return kStored[kFp8Rows]; }

std::optional<int64_t> stored_size(int64_t size, int64_t each, bool partial) {
  if (size % each != 0 && !partial) return std::nullopt;
  return (size + each - 1) / each;
}

std::vector<int64_t> stored_shape(const StoredPart& part, int64_t rows, int64_t columns, std::string_view tensor) {
  const auto whole = [&](int64_t size, int64_t each, std::string_view axis) {
    const auto count = stored_size(size, each, part.partial);
    if (!count) {
      fail(ErrorKind::kModel, "{}: {} {} of the matrix do not come out whole in {}s; this format needs a multiple",
           tensor, size, axis, each);
    }
    return *count;
  };
  std::vector<int64_t> shape = {whole(rows, part.rows, "rows")};
  if (part.columns == 0) return shape;
  if (part.inner == 0) {
    shape.push_back(whole(columns, part.columns, "columns"));
  } else {
    shape.push_back(whole(columns, part.columns * part.inner, "columns"));
    shape.push_back(part.inner);
  }
  return shape;
}

int64_t mlp_unit(const StoredFormat* format) {
  if (format == nullptr) return 16;
  switch (format->format) {
    case WeightFormat::kMxfp4:
      return 64;
    case WeightFormat::kFp8Block:
      return kFp8BlockSize;
    case WeightFormat::kFp8Channel:
      break;
  }
  return 16;
}

const StoredFormat* Quantization::format_of(std::string_view module) const {
  for (const Rule& rule : rules_) {
    if (!rule.pattern || rule.pattern->matches(module)) return rule.format;
  }
  return nullptr;
}

// Reads one config into the rules of a Quantization.
class QuantizationReader {
 public:
  QuantizationReader(const JsonObject& config, Quantization* out) : config_(config), out_(out) {}

  void read() {
    const std::string method = config_.string("quant_method").value_or("missing");
    if (method == "quark") return read_quark();
    if (method == "compressed-tensors") return read_compressed_tensors();
    if (method == "fp8") return read_fp8();
    if (method == "mxfp4") {
      exclude("modules_to_not_convert");
      add(std::nullopt, &kStored[kBlocksMxfp4]);
      return;
    }
    refuse(config_, "quant_method", printable(method));
  }

 private:
  [[noreturn]] static void refuse(const JsonObject& object, std::string_view key, std::string_view found) {
    fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: {}", object.path(key), found, kSupported);
  }
  [[noreturn]] static void refuse(const JsonObject& object, std::string_view key) {
    const auto value = object.find(key);
    refuse(object, key, value ? describe(*value) : "missing");
  }

  void add(std::optional<ModulePattern> pattern, const StoredFormat* format) {
    out_->rules_.push_back({std::move(pattern), format});
  }

  std::vector<ModulePattern> patterns(const JsonObject& object, std::string_view key) const {
    std::vector<ModulePattern> list;
    const auto array = object.array(key);
    if (!array) return list;
    for (simdjson::dom::element item : *array) {
      std::string_view text;
      if (item.get(text) != simdjson::SUCCESS) {
        fail(ErrorKind::kModel, "{} holds {}; expected names of modules", object.path(key), describe(item));
      }
      list.emplace_back(text, object.path(key));
    }
    return list;
  }

  // Modules that are left as they are.
  void exclude(std::string_view key) {
    for (ModulePattern& pattern : patterns(config_, key)) add(std::move(pattern), nullptr);
  }

  // ---- AMD Quark: one description for all layers, others for some

  void read_quark() {
    exclude("exclude");
    if (const auto layers = config_.object("layer_quant_config")) {
      for (const auto& field : layers->raw()) {
        const auto layer = layers->object(field.key);
        if (!layer) continue;
        add(ModulePattern(field.key, layers->path(printable(field.key))), quark_format(*layer));
      }
    }
    if (const auto types = config_.object("layer_type_quant_config"); types && types->raw().size() > 0) {
      refuse(config_, "layer_type_quant_config");
    }
    const auto global = config_.object("global_quant_config");
    if (!global) refuse(config_, "global_quant_config");
    add(std::nullopt, quark_format(*global));
  }

  // nullptr: the weights of these layers are left as they are.
  static const StoredFormat* quark_format(const JsonObject& layer) {
    const auto value = layer.find("weight");
    if (!value) return nullptr;
    const auto weight = layer.object("weight");
    const std::string type = weight->string("dtype").value_or("missing"),
                      scheme = weight->string("qscheme").value_or("");
    if (weight->boolean("is_dynamic").value_or(false)) refuse(*weight, "is_dynamic");
    if (type == "fp4") {
      if (scheme != "per_group") refuse(*weight, "qscheme");
      if (weight->integer("group_size", 1, 1 << 20).value_or(0) != kMxBlock) refuse(*weight, "group_size");
      if (weight->string("scale_format").value_or("missing") != "e8m0") refuse(*weight, "scale_format");
      return &kStored[kQuarkMxfp4];
    }
    if (type == "fp8_e4m3") {
      if (scheme != "per_channel" || weight->integer("ch_axis", -8, 8).value_or(0) != 0) refuse(*weight, "qscheme");
      return &kStored[kFp8Rows];
    }
    refuse(*weight, "dtype");
  }

  // ---- compressed-tensors: groups of modules, each with its description

  void read_compressed_tensors() {
    exclude("ignore");
    const auto groups = config_.object("config_groups");
    if (!groups || groups->raw().size() == 0) refuse(config_, "config_groups");
    const StoredFormat* linear = nullptr;  // what names modules goes before what names their class
    for (const auto& field : groups->raw()) {
      const auto group = groups->object(field.key);
      if (!group || !group->object("weights")) {
        fail(ErrorKind::kModel, "{} describes no weights; supported: {}", groups->path(printable(field.key)),
             kSupported);
      }
      const StoredFormat* format = group_format(*group->object("weights"));
      if (all_linear(*group)) {
        linear = format;
      } else {
        for (ModulePattern& pattern : patterns(*group, "targets")) add(std::move(pattern), format);
      }
    }
    if (linear != nullptr) add(std::nullopt, linear);
  }

  // "Linear" names a class: all matrices that are not ignored.
  static bool all_linear(const JsonObject& group) {
    const auto list = group.array("targets");
    if (!list) return true;
    for (simdjson::dom::element item : *list) {
      std::string_view text;
      if (item.get(text) == simdjson::SUCCESS && text == "Linear") return true;
    }
    return false;
  }

  static const StoredFormat* group_format(const JsonObject& weights) {
    if (weights.string("type").value_or("int") != "float") refuse(weights, "type");
    if (weights.boolean("dynamic").value_or(false)) refuse(weights, "dynamic");
    const int64_t bits = weights.integer("num_bits", 1, 64).value_or(0);
    const std::string strategy = weights.string("strategy").value_or("missing");
    if (bits == 4) {
      if (strategy != "group") refuse(weights, "strategy");
      if (weights.integer("group_size", -1, 1 << 20).value_or(0) != kMxBlock) refuse(weights, "group_size");
      return &kStored[kPackedMxfp4];
    }
    if (bits != 8) refuse(weights, "num_bits");
    if (strategy == "channel") return &kStored[kFp8Rows];
    if (strategy != "block") refuse(weights, "strategy");
    check_block(weights, "block_structure");
    return &kStored[kFp8Scale];
  }

  static void check_block(const JsonObject& object, std::string_view key) {
    const auto list = object.array(key);
    if (!list || list->size() != 2) refuse(object, key);
    for (simdjson::dom::element item : *list) {
      int64_t size = 0;
      if (item.get(size) != simdjson::SUCCESS || size != kFp8BlockSize) refuse(object, key);
    }
  }

  // ---- DeepSeek's and Qwen's FP8

  void read_fp8() {
    if (const auto name = config_.string("fmt"); name && *name != "e4m3") refuse(config_, "fmt");
    check_block(config_, "weight_block_size");
    exclude("modules_to_not_convert");
    exclude("ignored_layers");
    add(std::nullopt, &kStored[kFp8ScaleInv]);
  }

  const JsonObject& config_;
  Quantization* out_;
};

Quantization Quantization::parse(const JsonObject& config, const JsonObject& text) {
  Quantization out;
  auto described = config.object("quantization_config");
  if (!described || described->raw().size() == 0) described = text.object("quantization_config");
  if (!described || described->raw().size() == 0) return out;
  QuantizationReader(*described, &out).read();
  out.text_ = simdjson::minify(described->raw());
  return out;
}

}  // namespace coprime
