// The embedded model in each format: what is written is read again as the config says, close to what it was, and
// whatever goes wrong leaves nothing behind.
#include "tools/quantize.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/test_checkpoints.h"
#include "geometry/test_configs.h"
#include "tensor/block_formats.h"

namespace coprime {
namespace {

struct Case {
  QuantizeFormat format;
  const char* name;  // the StoredFormat's that a reader finds
  double error;      // of a matrix, against its own size, at most
};
constexpr Case kCases[] = {
    {QuantizeFormat::kMxfp4, "MXFP4 (Quark)", 0.13},
    {QuantizeFormat::kFp8Block, "FP8 128x128 (weight_scale_inv)", 0.03},
    {QuantizeFormat::kFp8Channel, "FP8 per channel", 0.03},
};

const std::filesystem::path kMini = std::filesystem::path(COPRIME_SOURCE_DIR) / "models/mini-qwen35";

void no_progress(uint64_t, uint64_t) {}

class NumbersSink : public WeightSink {
 public:
  NumbersSink(const LocalTensor& tensor, std::vector<float>* out) : type_(tensor.type), out_(out) {}
  void rows(int64_t, int64_t, std::span<const std::byte> bytes) override {
    const BlockShape block = block_shape(type_);
    const auto blocks = static_cast<int64_t>(bytes.size()) / block.bytes;
    const size_t at = out_->size();
    out_->resize(at + static_cast<size_t>(blocks * block.elements));
    dequantize(type_, bytes.data(), blocks, out_->data() + at);
  }

 private:
  DType type_;
  std::vector<float>* out_;
};

struct Read {
  int64_t columns;
  bool blocks;
  std::vector<float> numbers;
};

// By layer and rule, so that names of formats do not matter.
std::map<std::pair<int, std::string>, Read> read_all(const std::filesystem::path& model) {
  std::map<std::pair<int, std::string>, Read> all;
  const ShardPlan plan(read_model_shape(model), {});
  load_shard(Checkpoint::open(model), plan, 0, [&](const LocalTensor& tensor) {
    Read& read = all[{tensor.layer, tensor.rule->suffix}];
    read.columns = tensor.columns.extent;
    read.blocks = is_block(tensor.type);
    return std::make_unique<NumbersSink>(tensor, &read.numbers);
  });
  return all;
}

TEST(Quantize, the_embedded_model_is_read_again_close_to_what_it_was) {
  const auto before = read_all(kMini);
  for (const Case& c : kCases) {
    const TemporaryFolder folder;
    uint64_t last = 0;
    const QuantizeReport report =
        quantize_model({.model = kMini, .out = folder / "out", .format = c.format}, [&](uint64_t done, uint64_t total) {
          EXPECT_LE(done, total);
          last = done * 100 / total;
        });
    EXPECT_EQ(last, 100u);
    const bool mx = c.format == QuantizeFormat::kMxfp4;
    EXPECT_EQ(report.quantised, mx ? 6 * 5 + 2 * 4 + 8 * 3 : 6 * 3 + 2 * 4 + 8 * 3);
    EXPECT_LT(report.bytes_after, report.bytes_before * (mx ? 0.4 : 0.65));
    const ModelShape shape = read_model_shape(folder / "out");
    EXPECT_EQ(shape.quantization.format_of("model.language_model.layers.0.mlp.up_proj")->name, c.name);
    EXPECT_EQ(shape.quantization.format_of("lm_head"), nullptr);
    for (const auto& [key, read] : read_all(folder / "out")) {
      const Read& old = before.at(key);
      const int64_t rows = static_cast<int64_t>(old.numbers.size()) / old.columns;
      double error = 0, size = 0;
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t k = 0; k < old.columns; ++k) {
          const double value = old.numbers[static_cast<size_t>(r * old.columns + k)];
          const double difference = value - read.numbers[static_cast<size_t>(r * read.columns + k)];
          error += difference * difference, size += value * value;
        }
      }
      if (read.blocks) {
        EXPECT_LT(std::sqrt(error / size), c.error) << key.second;
        EXPECT_GT(error, 0) << key.second;
      } else {
        EXPECT_EQ(error, 0) << key.second;
      }
    }
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
      EXPECT_TRUE(std::filesystem::exists(folder / "out" / name)) << name;
    }
  }
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

// A small model whose tensors are normal numbers, in two files with an index; MTP and vision among them.
class SmallSource : public testing::Test {
 protected:
  SmallSource() {
    std::filesystem::create_directory(folder_ / "in");
    write_bytes(folder_ / "in/config.json", config("llama", {{"intermediate_size", "160"}}));
    const ModelShape shape = read_model_shape(folder_ / "in");
    std::mt19937 random(5);
    std::normal_distribution<float> normal(0, 0.02f);
    for (auto& [name, tensor] : random_tensors(shape, 5)) {
      tensor.type = DType::kF32;
      tensor.bytes.resize(static_cast<size_t>(count_of(tensor.shape)) * 4);
      for (size_t i = 0; i < tensor.bytes.size(); i += 4) {
        const float value = normal(random);
        std::memcpy(tensor.bytes.data() + i, &value, 4);
      }
      files_[name.find("layers.1.") != name.npos][name] = std::move(tensor);
    }
    files_[1]["mtp.fc.weight"] = {DType::kU8, {3, 5}, std::vector<std::byte>(15, std::byte{7})};
  }
  void write() {
    nlohmann::json map;
    for (int i : {0, 1}) {
      const std::string name = fmt::format("model-{}.safetensors", i);
      write_tensors(folder_ / "in" / name, files_[i]);
      for (const auto& [tensor, _] : files_[i]) map[tensor] = name;
    }
    write_bytes(folder_ / "in/model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  }
  QuantizeReport quantize(QuantizeFormat format = QuantizeFormat::kMxfp4) {
    return quantize_model({.model = folder_ / "in", .out = folder_ / "out", .format = format}, no_progress);
  }
  std::string message() {
    try {
      quantize();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  TemporaryFolder folder_;
  TensorMap files_[2];
};

TEST_F(SmallSource, files_and_their_index_are_kept_and_what_is_unused_is_copied) {
  write();
  for (const Case& c : kCases) {
    quantize(c.format);
    EXPECT_EQ(names_in(folder_ / "out"), names_in(folder_ / "in"));
    const Checkpoint out = Checkpoint::open(folder_ / "out");
    EXPECT_GT(read_all(folder_ / "out").size(), 30u);
    for (const Checkpoint::Located& at : out.tensors()) {
      if (at.tensor->name != "mtp.fc.weight") continue;
      std::vector<std::byte> bytes(15);
      at.file->read(at.tensor->offset, bytes);
      EXPECT_EQ(bytes, files_[1].at("mtp.fc.weight").bytes);
    }
    std::filesystem::remove_all(folder_ / "out");
  }
}

TEST_F(SmallSource, a_folder_that_is_there_is_left_alone) {
  write();
  std::filesystem::create_directory(folder_ / "out");
  std::ofstream(folder_ / "out" / "file") << "kept";
  EXPECT_NE(message().find("out is there and holds something"), std::string::npos);
  EXPECT_EQ(names_in(folder_ / "out"), std::set<std::string>{"file"});
}

TEST_F(SmallSource, a_number_that_is_not_finite_is_named_and_nothing_is_left_behind) {
  const float bad = INFINITY;
  NamedTensor& tensor = files_[1].at("model.layers.1.mlp.up_proj.weight");
  std::memcpy(tensor.bytes.data() + 4 * (3 * 96 + 5), &bad, 4);
  write();
  const std::string found = message();
  EXPECT_NE(found.find("model.layers.1.mlp.up_proj.weight holds a number that is not finite, in row 3"), found.npos)
      << found;
  EXPECT_EQ(names_in(folder_.path()), std::set<std::string>{"in"});
}

TEST_F(SmallSource, a_quantised_model_is_refused) {
  write();
  quantize();
  std::filesystem::rename(folder_ / "out", folder_ / "first");
  std::filesystem::remove_all(folder_ / "in");
  std::filesystem::rename(folder_ / "first", folder_ / "in");
  EXPECT_NE(message().find("is quantised already"), std::string::npos);
}

}  // namespace
}  // namespace coprime
