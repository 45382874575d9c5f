#include "tools/quantize.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/output_file.h"
#include "base/output_folder.h"
#include "base/small_floats.h"
#include "checkpoint/checkpoint.h"
#include "json/json.h"
#include "tensor/block_formats.h"
#include "tensor/quantise.h"

namespace coprime {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxConfigBytes = 4 << 20, kCopyBytes = 8 << 20;

// The names that the field writes for each: Quark, Qwen's FP8, compressed-tensors.
const StoredFormat& stored_format(QuantizeFormat format) {
  switch (format) {
    case QuantizeFormat::kMxfp4:
      return quark_mxfp4();
    case QuantizeFormat::kFp8Block:
      return fp8_block();
    case QuantizeFormat::kFp8Channel:
      break;
  }
  return fp8_channel();
}

// Linear layers of the decoder. The small inputs of DeltaNet's gates stay as they are in FP8, as in Qwen's own.
bool is_quantised(const Rule& rule, const StoredFormat& format) {
  if (rule.shape.size() != 2 || rule.scope == Scope::kModel) return false;
  const bool mx = format.format == WeightFormat::kMxfp4;
  if (rule.id == TensorId::kInA || rule.id == TensorId::kInB) return mx;
  return !mx || rule.shape[1] % kMxBlock == 0;
}

std::string module_of(std::string_view name) {
  if (name.ends_with(".weight")) name.remove_suffix(7);
  return std::string(name);
}

// ---- the config

ordered_json quark_config(const std::vector<std::string>& kept) {
  const ordered_json weight = {{"dtype", "fp4"},
                               {"is_dynamic", false},
                               {"qscheme", "per_group"},
                               {"ch_axis", -1},
                               {"group_size", kMxBlock},
                               {"observer_cls", "PerBlockMXObserver"},
                               {"round_method", "half_even"},
                               {"scale_calculation_mode", "even"},
                               {"scale_format", "e8m0"},
                               {"scale_type", "float"}};
  const ordered_json nothing = ordered_json::object();
  return {
      {"quant_method", "quark"},
      {"quant_mode", "eager_mode"},
      {"global_quant_config",
       {{"weight", weight}, {"input_tensors", nullptr}, {"output_tensors", nullptr}, {"bias", nullptr}}},
      {"layer_quant_config", nothing},
      {"layer_type_quant_config", nothing},
      {"kv_cache_quant_config", nothing},
      {"exclude", kept},
      {"export",
       {{"kv_cache_group", ordered_json::array()}, {"pack_method", "reorder"}, {"weight_format", "real_quantized"}}}};
}

ordered_json block_config(const std::vector<std::string>& kept) {
  return {{"quant_method", "fp8"},
          {"fmt", "e4m3"},
          {"activation_scheme", "dynamic"},
          {"weight_block_size", {kFp8BlockSize, kFp8BlockSize}},
          {"modules_to_not_convert", kept}};
}

ordered_json channel_config(const std::vector<std::string>& kept) {
  const ordered_json weights = {{"num_bits", 8},     {"type", "float"},  {"strategy", "channel"},
                                {"symmetric", true}, {"dynamic", false}, {"observer", "minmax"}};
  const ordered_json inputs = {
      {"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"symmetric", true}, {"dynamic", true}};
  return {
      {"quant_method", "compressed-tensors"},
      {"format", "float-quantized"},
      {"quantization_status", "compressed"},
      {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", inputs}}}}},
      {"ignore", kept}};
}

std::string config_text(const std::filesystem::path& model, QuantizeFormat format,
                        const std::vector<std::string>& kept) {
  ordered_json config = ordered_json::parse(read_text_file(model / "config.json", kMaxConfigBytes));
  config["quantization_config"] = format == QuantizeFormat::kMxfp4      ? quark_config(kept)
                                  : format == QuantizeFormat::kFp8Block ? block_config(kept)
                                                                        : channel_config(kept);
  return config.dump(2) + "\n";
}

// ---- the files

struct Entry {
  std::string name;
  std::string type;
  int width = 0;  // bytes of an element, as the order of the file counts them
  std::vector<int64_t> shape;
  uint64_t bytes = 0;
};

// A safetensors file that is written at any place; its header first.
class ShardWriter {
 public:
  ShardWriter(const std::filesystem::path& path, std::vector<Entry> entries) : file_(path) {
    std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
      return std::pair(-a.width, std::cref(a.name).get()) < std::pair(-b.width, std::cref(b.name).get());
    });
    ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
    uint64_t at = 0;
    for (const Entry& entry : entries) {
      header[entry.name] = {{"dtype", entry.type}, {"shape", entry.shape}, {"data_offsets", {at, at + entry.bytes}}};
      places_[entry.name] = at;
      at += entry.bytes;
    }
    std::string text = header.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const uint64_t length = text.size();
    file_.write(std::as_bytes(std::span(&length, 1)));
    file_.write(std::as_bytes(std::span(text)));
    data_ = 8 + length;
  }
  void write(const std::string& tensor, uint64_t offset, std::span<const std::byte> bytes) {
    file_.write_at(data_ + places_.at(tensor) + offset, bytes);
  }
  void finish() { file_.finish(); }

 private:
  OutputFile file_;
  uint64_t data_ = 0;
  std::map<std::string, uint64_t> places_;
};

// Takes the rows of a tensor as they are.
class CopySink final : public WeightSink {
 public:
  CopySink(ShardWriter& out, std::string name) : out_(out), name_(std::move(name)) {}
  void rows(int64_t, int64_t, std::span<const std::byte> bytes) override {
    out_.write(name_, offset_, bytes);
    offset_ += bytes.size();
  }

 private:
  ShardWriter& out_;
  std::string name_;
  uint64_t offset_ = 0;
};

// Tells how many bytes came, before another sink has them.
class CountedSink final : public WeightSink {
 public:
  CountedSink(std::unique_ptr<WeightSink> sink, std::function<void(uint64_t)> advance)
      : sink_(std::move(sink)), advance_(std::move(advance)) {}
  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    advance_(bytes.size());
    sink_->rows(first, count, bytes);
  }

 private:
  std::unique_ptr<WeightSink> sink_;
  std::function<void(uint64_t)> advance_;
};

// Quantises rows, 128 at a time: those that may share scales.
class QuantiseSink final : public WeightSink {
 public:
  QuantiseSink(ShardWriter& out, const StoredFormat& format, const LocalTensor& tensor)
      : out_(out),
        format_(format),
        name_(tensor.name),
        module_(module_of(tensor.name)),
        type_(tensor.type),
        rows_(tensor.rows.extent),
        columns_(tensor.columns.extent) {}

  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    const auto row_bytes = static_cast<size_t>(columns_ * dtype_bytes(type_));
    for (int64_t r = 0; r < count; ++r) {
      const size_t at = group_.size();
      group_.resize(at + static_cast<size_t>(columns_));
      dequantize(type_, bytes.data() + static_cast<size_t>(r) * row_bytes, columns_, group_.data() + at);
      if ((first + r + 1) % kFp8BlockSize == 0 || first + r + 1 == rows_) flush();
    }
  }

 private:
  std::span<const float> row(int64_t r) const {
    return std::span(group_).subspan(static_cast<size_t>(r * columns_), static_cast<size_t>(columns_));
  }
  int64_t group_rows() const { return static_cast<int64_t>(group_.size()) / columns_; }

  void flush() {
    for (int64_t r = 0; r < group_rows(); ++r) {
      if (!std::isfinite(largest_magnitude(row(r)))) {
        fail(ErrorKind::kModel,
             "tensor {} holds a number that is not finite, in row {}; the file is damaged: fetch it again", name_,
             first_ + r);
      }
    }
    switch (format_.format) {
      case WeightFormat::kMxfp4:
        flush_mxfp4();
        break;
      case WeightFormat::kFp8Block:
        flush_fp8(kFp8BlockSize);
        break;
      case WeightFormat::kFp8Channel:
        flush_fp8(1);
        break;
    }
    out_.write(module_ + std::string(format_.codes.suffix), codes_at_, codes_);
    out_.write(module_ + std::string(format_.scales.suffix), scales_at_, scales_);
    codes_at_ += codes_.size(), scales_at_ += scales_.size();
    first_ += group_rows();
    group_.clear();
  }

  void flush_mxfp4() {
    const auto codes = static_cast<size_t>(columns_ / 2), scales = static_cast<size_t>(columns_ / kMxBlock);
    codes_.resize(codes * static_cast<size_t>(group_rows()));
    scales_.resize(scales * static_cast<size_t>(group_rows()));
    for (int64_t r = 0; r < group_rows(); ++r) {
      const auto i = static_cast<size_t>(r);
      quantise_mxfp4(row(r), std::span(codes_).subspan(i * codes, codes),
                     std::span(scales_).subspan(i * scales, scales));
    }
  }

  // A scale for `rows` rows by as many columns, or for a whole row.
  void flush_fp8(int64_t rows) {
    const int64_t width = rows == 1 ? columns_ : rows;
    codes_.resize(group_.size());
    scales_.clear();
    for (int64_t r = 0; r < group_rows(); r += rows) {
      const int64_t last = std::min(r + rows, group_rows());
      for (int64_t c = 0; c < columns_; c += width) {
        const auto part = [&](int64_t at) {
          return row(at).subspan(static_cast<size_t>(c), static_cast<size_t>(std::min(width, columns_ - c)));
        };
        float largest = 0;
        for (int64_t at = r; at < last; ++at) largest = std::max(largest, largest_magnitude(part(at)));
        const float scale = fp8_scale(largest);
        const auto bytes = std::as_bytes(std::span(&scale, 1));
        scales_.insert(scales_.end(), bytes.begin(), bytes.end());
        for (int64_t at = r; at < last; ++at) {
          quantise_fp8(part(at), scale,
                       std::span(codes_).subspan(static_cast<size_t>(at * columns_ + c), part(at).size()));
        }
      }
    }
  }

  ShardWriter& out_;
  const StoredFormat& format_;
  std::string name_, module_;
  DType type_;
  int64_t rows_, columns_, first_ = 0;
  std::vector<float> group_;
  std::vector<std::byte> codes_, scales_;
  uint64_t codes_at_ = 0, scales_at_ = 0;
};

// Tokenizer, templates, generation settings: every small file that holds no weights.
void copy_others(const std::filesystem::path& from, const OutputFolder& to) {
  for (const auto& entry : std::filesystem::directory_iterator(from)) {
    const std::string extension = entry.path().extension().string(), name = entry.path().filename().string();
    const bool text = extension == ".json" || extension == ".jinja" || extension == ".txt" || extension == ".model" ||
                      extension == ".md" || name == "LICENSE";
    if (!entry.is_regular_file() || !text || name == "config.json" || name == "model.safetensors.index.json") continue;
    std::error_code error;
    if (!std::filesystem::copy_file(entry.path(), to / name, error)) {
      fail(ErrorKind::kModel, "{}: cannot be copied to {}: {}", entry.path().string(), (to / name).string(),
           error.message());
    }
  }
}

class Quantizer {
 public:
  Quantizer(const QuantizeOptions& options, const std::function<void(uint64_t, uint64_t)>& progress)
      : options_(options),
        progress_(progress),
        format_(stored_format(options.format)),
        plan_(source_shape(options.model), {}),
        checkpoint_(Checkpoint::open(options.model)),
        folder_(options.out) {}

  QuantizeReport run() {
    const Tally tally = check_checkpoint(checkpoint_, plan_);
    choose(tally);
    open_shards();
    for (const Checkpoint::Located& at : checkpoint_.tensors()) total_ += at.tensor->bytes;
    load_shard(checkpoint_, plan_, 0, [this](const LocalTensor& tensor) { return sink_for(tensor); });
    copy_unused(std::set<std::string>(tally.unused.begin(), tally.unused.end()));
    for (auto& [name, shard] : shards_) shard->finish();
    write_output(folder_ / "config.json", config_text(options_.model, options_.format, kept_));
    if (shards_.size() > 1 || !shards_.contains("model.safetensors")) write_index();
    copy_others(options_.model, folder_);
    folder_.finish();
    return report_;
  }

 private:
  static ModelShape source_shape(const std::filesystem::path& model) {
    ModelShape shape = read_model_shape(model);
    if (shape.container == Container::kGguf) {
      fail(ErrorKind::kModel, "{}: a GGUF file; expected a folder with config.json and safetensors", model.string());
    }
    if (!shape.quantization.empty()) {
      fail(ErrorKind::kModel, "{}: is quantised already; expected weights in BF16, F16 or F32", model.string());
    }
    return shape;
  }

  // Which tensors are quantised, and the modules that the config is to name as left alone.
  void choose(const Tally& tally) {
    for (const Rule& rule : plan_.rules()) {
      for (int layer = -1; layer < plan_.shape().layers; ++layer) {
        if (!plan_.applies(rule, layer)) continue;
        const std::string name = plan_.tensor_name(rule, layer);
        if (is_quantised(rule, format_)) {
          quantised_.insert({name, &rule});
        } else if (rule.shape.size() == 2) {
          kept_.push_back(module_of(name));
        }
      }
    }
    std::set<std::string> modules;  // of the head and of vision, which have linear layers of their own
    for (const std::string& name : tally.unused) {
      if (name.ends_with(".weight")) modules.insert(module_of(name));
    }
    kept_.insert(kept_.end(), modules.begin(), modules.end());
  }

  void open_shards() {
    std::map<std::string, std::vector<Entry>> entries;
    for (const Checkpoint::Located& at : checkpoint_.tensors()) {
      const std::string file = at.file->path().filename().string();
      const TensorInfo& tensor = *at.tensor;
      report_.bytes_before += tensor.bytes;
      const auto found = quantised_.find(tensor.name);
      if (found == quantised_.end()) {
        ++report_.kept;
        entries[file].push_back({tensor.name, tensor.type_name, dtype_bytes(tensor.type), tensor.shape, tensor.bytes});
      } else {
        ++report_.quantised;
        add_parts(tensor, *found->second, &entries[file]);
      }
    }
    for (auto& [file, list] : entries) {
      for (const Entry& entry : list) {
        report_.bytes_after += entry.bytes;
        map_[entry.name] = file;
      }
      shards_[file] = std::make_unique<ShardWriter>(folder_ / file, std::move(list));
    }
  }

  void add_parts(const TensorInfo& tensor, const Rule& rule, std::vector<Entry>* entries) const {
    for (const StoredPart* part : {&format_.codes, &format_.scales}) {
      const DType type = part->types[0];
      Entry entry{module_of(tensor.name) + std::string(part->suffix), std::string(dtype_name(type)), dtype_bytes(type),
                  stored_shape(*part, rule.shape[0], rule.shape[1], tensor.name)};
      if (part->columns == 0) entry.shape.push_back(1);  // as compressed-tensors has it
      entry.bytes = static_cast<uint64_t>(entry.width);
      for (int64_t size : entry.shape) entry.bytes *= static_cast<uint64_t>(size);
      entries->push_back(std::move(entry));
    }
  }

  ShardWriter& shard_of(const std::string& name) { return *shards_.at(map_.at(name)); }

  std::unique_ptr<WeightSink> sink_for(const LocalTensor& tensor) {
    std::unique_ptr<WeightSink> sink;
    if (quantised_.contains(tensor.name)) {
      ShardWriter& out = shard_of(module_of(tensor.name) + std::string(format_.codes.suffix));
      sink = std::make_unique<QuantiseSink>(out, format_, tensor);
    } else {
      sink = std::make_unique<CopySink>(shard_of(tensor.name), tensor.name);
    }
    return std::make_unique<CountedSink>(std::move(sink), [this](uint64_t bytes) { advance(bytes); });
  }

  void copy_unused(const std::set<std::string>& names) {
    std::vector<std::byte> bytes;
    for (const Checkpoint::Located& at : checkpoint_.tensors()) {
      if (!names.contains(at.tensor->name)) continue;
      for (uint64_t done = 0; done < at.tensor->bytes; done += bytes.size()) {
        bytes.resize(static_cast<size_t>(std::min<uint64_t>(kCopyBytes, at.tensor->bytes - done)));
        at.file->read(at.tensor->offset + done, bytes);
        shard_of(at.tensor->name).write(at.tensor->name, done, bytes);
        advance(bytes.size());
      }
    }
  }

  void write_index() const {
    ordered_json index = {{"metadata", {{"total_size", report_.bytes_after}}}, {"weight_map", map_}};
    write_output(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
  }

  void advance(uint64_t bytes) { progress_(done_ += bytes, total_); }

  const QuantizeOptions& options_;
  const std::function<void(uint64_t, uint64_t)>& progress_;
  const StoredFormat& format_;
  const ShardPlan plan_;
  const Checkpoint checkpoint_;
  OutputFolder folder_;
  std::map<std::string, const Rule*> quantised_;
  std::vector<std::string> kept_;
  std::map<std::string, std::string> map_;  // tensor -> file
  std::map<std::string, std::unique_ptr<ShardWriter>> shards_;
  QuantizeReport report_;
  uint64_t done_ = 0, total_ = 0;
};

}  // namespace

QuantizeReport quantize_model(const QuantizeOptions& options,
                              const std::function<void(uint64_t done, uint64_t total)>& progress) {
  return Quantizer(options, progress).run();
}

}  // namespace coprime
