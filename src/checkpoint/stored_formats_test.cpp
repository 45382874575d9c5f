// Matrices in codes and scales: the rows that reach the sinks stand for the whole's numbers, at every rank count, with
// the format's fill; and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "base/number_formats.h"
#include "base/small_floats.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/test_checkpoints.h"
#include "geometry/test_configs.h"
#include "tensor/block_formats.h"

namespace coprime {
namespace {

// Of the formats, one that is read in tests by its config.
struct Case {
  std::string_view name;  // a StoredFormat's
  std::string config;     // its quantization_config
};
const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"MXFP4 (Quark)", R"({"quant_method":"quark","exclude":["lm_head"],"global_quant_config":{"weight":{"dtype":"fp4",
         "qscheme":"per_group","group_size":32,"scale_format":"e8m0"}}})"},
      {"MXFP4 (compressed-tensors)", R"({"quant_method":"compressed-tensors","ignore":["lm_head"],"config_groups":{"g":{
         "targets":["Linear"],"weights":{"num_bits":4,"type":"float","strategy":"group","group_size":32}}}})"},
      {"MXFP4 (blocks)", R"({"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]})"},
      {"FP8 128x128 (weight_scale_inv)", R"({"quant_method":"fp8","weight_block_size":[128,128],
         "modules_to_not_convert":["lm_head"]})"},
      {"FP8 128x128 (weight_scale)", R"({"quant_method":"compressed-tensors","ignore":["lm_head"],"config_groups":{"g":{
         "targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":[128,128]}}}})"},
      {"FP8 per channel", R"({"quant_method":"quark","exclude":["lm_head"],"global_quant_config":{"weight":{
         "dtype":"fp8_e4m3","qscheme":"per_channel","ch_axis":0}}})"},
  };
  return kCases;
}

// A hybrid whose widths 32 divides and 128 does not: 12 query heads of 16 in 4 groups, 6 key and 12 value heads of 16.
ModelShape shape_of(const Case& c) {
  return parse(config("qwen35", {{"hidden_size", "96"},
                                 {"intermediate_size", "288"},
                                 {"num_attention_heads", "12"},
                                 {"num_key_value_heads", "4"},
                                 {"linear_num_key_heads", "6"},
                                 {"linear_value_head_dim", "16"},
                                 {"quantization_config", c.config}}));
}

using Numbers = std::map<std::string, std::vector<float>>;  // of each matrix or vector, by its own name

std::vector<std::byte> random_bytes(int64_t count, std::mt19937& random) {
  std::vector<std::byte> bytes(static_cast<size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A matrix in codes and scales, random, and its numbers, computed here from the format's definition.
std::vector<float> add_stored(const StoredFormat& format, const std::string& module, int64_t rows, int64_t columns,
                              std::mt19937& random, TensorMap* tensors) {
  const bool mx = format.format == WeightFormat::kMxfp4;
  NamedTensor codes{format.codes.types[0], stored_shape(format.codes, rows, columns, ""), {}};
  NamedTensor scales{format.scales.types[random() % 2], stored_shape(format.scales, rows, columns, ""), {}};
  if (format.scales.columns == 0 && random() % 2 == 0) scales.shape.push_back(1);
  codes.bytes = random_bytes(count_of(codes.shape), random);
  if (mx) {
    for (int64_t i = 0; i < count_of(scales.shape); ++i)
      scales.bytes.push_back(static_cast<std::byte>(100 + random() % 50));
  } else {
    for (std::byte& code : codes.bytes) {
      if ((code & std::byte{0x7f}) == std::byte{0x7f}) code = std::byte{0};
    }
    std::uniform_real_distribution<float> sizes(0.001f, 0.1f);
    for (int64_t i = 0; i < count_of(scales.shape); ++i) {
      const float scale = sizes(random);
      const uint16_t rounded = f32_to_bf16(scale);
      const bool wide = scales.type == DType::kF32;
      const auto* from =
          wide ? reinterpret_cast<const std::byte*>(&scale) : reinterpret_cast<const std::byte*>(&rounded);
      scales.bytes.insert(scales.bytes.end(), from, from + (wide ? 4 : 2));
    }
  }
  std::vector<float> numbers;
  const int64_t scale_columns =
      format.scales.columns == 0 ? 1 : (columns + format.scales.columns - 1) / format.scales.columns;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t place =
          r / format.scales.rows * scale_columns + (format.scales.columns == 0 ? 0 : c / format.scales.columns);
      if (mx) {
        const auto byte = static_cast<uint8_t>(codes.bytes[static_cast<size_t>((r * columns + c) / 2)]);
        const auto exponent = static_cast<int>(scales.bytes[static_cast<size_t>(place)]);
        numbers.push_back(std::ldexp(e2m1_to_f32(c % 2 == 0 ? byte & 15 : byte >> 4), exponent - 127));
      } else {
        float scale;
        uint16_t half;
        if (scales.type == DType::kF32) {
          std::memcpy(&scale, scales.bytes.data() + place * 4, 4);
        } else {
          std::memcpy(&half, scales.bytes.data() + place * 2, 2);
          scale = bf16_to_f32(half);
        }
        numbers.push_back(e4m3_to_f32(static_cast<uint8_t>(codes.bytes[static_cast<size_t>(r * columns + c)])) * scale);
      }
    }
  }
  (*tensors)[module + std::string(format.codes.suffix)] = std::move(codes);
  (*tensors)[module + std::string(format.scales.suffix)] = std::move(scales);
  return numbers;
}

// Every tensor that the shape's rules and its config predict.
TensorMap random_stored(const ModelShape& shape, unsigned seed, Numbers* numbers = nullptr) {
  std::mt19937 random(seed);
  TensorMap tensors = random_tensors(shape, seed), made;
  for (auto& [name, tensor] : tensors) {
    const StoredFormat* format = nullptr;
    const std::string module = name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
    if (tensor.shape.size() == 2 && !name.ends_with("embed_tokens.weight"))
      format = shape.quantization.format_of(module);
    std::vector<float> values;
    if (format != nullptr) {
      values = add_stored(*format, module, tensor.shape[0], tensor.shape[1], random, &made);
    } else {
      values.resize(static_cast<size_t>(count_of(tensor.shape)));
      dequantize(tensor.type, tensor.bytes.data(), count_of(tensor.shape), values.data());
      made[name] = std::move(tensor);
    }
    if (numbers != nullptr) (*numbers)[name] = std::move(values);
  }
  return made;
}

struct Loaded {
  LocalTensor tensor;
  std::vector<std::byte> bytes;
};

class KeepingSink : public WeightSink {
 public:
  explicit KeepingSink(Loaded* loaded) : loaded_(loaded) {}
  void rows(int64_t, int64_t, std::span<const std::byte> bytes) override {
    loaded_->bytes.insert(loaded_->bytes.end(), bytes.begin(), bytes.end());
  }

 private:
  Loaded* loaded_;
};

std::vector<Loaded> load(const Checkpoint& checkpoint, const ShardPlan& plan, int rank) {
  std::vector<std::unique_ptr<Loaded>> kept;
  load_shard(checkpoint, plan, rank, [&](const LocalTensor& tensor) {
    kept.push_back(std::make_unique<Loaded>(Loaded{tensor, {}}));
    return std::make_unique<KeepingSink>(kept.back().get());
  });
  std::vector<Loaded> shard;
  for (auto& loaded : kept) shard.push_back(std::move(*loaded));
  return shard;
}

// What a rank holds, widened.
std::vector<float> numbers_of(const Loaded& loaded) {
  const BlockShape block = block_shape(loaded.tensor.type);
  const int64_t count = loaded.tensor.rows.extent * loaded.tensor.columns.extent;
  EXPECT_EQ(static_cast<int64_t>(loaded.bytes.size()), count / block.elements * block.bytes);
  std::vector<float> values(static_cast<size_t>(count));
  dequantize(loaded.tensor.type, loaded.bytes.data(), count / block.elements, values.data());
  return values;
}

// The rows and columns that the maps name, by hand; the columns past the file's last one, and fill, are zero.
std::vector<float> slice(const std::vector<float>& whole, int64_t width, const LocalTensor& local) {
  std::vector<float> out(static_cast<size_t>(local.rows.extent * local.columns.extent));
  for (const Span& r : local.rows.real) {
    for (int64_t i = 0; i < r.count; ++i) {
      for (const Span& c : local.columns.real) {
        for (int64_t j = 0; j < std::min(c.count, width - c.global); ++j) {
          out[static_cast<size_t>((r.local + i) * local.columns.extent + c.local + j)] =
              whole[static_cast<size_t>((r.global + i) * width + c.global + j)];
        }
      }
    }
  }
  return out;
}

TEST(StoredFormats, a_rank_holds_the_numbers_that_the_plan_names) {
  for (const Case& c : cases()) {
    const ModelShape shape = shape_of(c);
    const TemporaryFolder folder;
    Numbers numbers;
    write_tensors(folder / "model.safetensors", random_stored(shape, 3, &numbers));
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    for (int ranks : {1, 2, 3, 5, 7}) {
      for (int variant = 0; variant < 4; ++variant) {
        const ShardPlan plan(
            shape,
            {.ranks = ranks, .exact = (variant & 1) != 0, .dummies = variant & 2 ? Dummies::kHeld : Dummies::kSkipped});
        for (int rank = 0; rank < ranks; ++rank) {
          size_t stored = 0;
          for (const Loaded& loaded : load(checkpoint, plan, rank)) {
            const LocalTensor& local = loaded.tensor;
            if (!is_block(local.type)) continue;
            ++stored;
            const std::string name = plan.tensor_name(*local.rule, local.layer);
            const int64_t width = count_of(local.rule->shape) / local.rule->shape[0];
            ASSERT_EQ(numbers_of(loaded), slice(numbers.at(name), width, local))
                << c.name << ": " << name << " rank " << rank << '/' << ranks;
          }
          ASSERT_EQ(stored, 4u * 3 + 3 * 5 + 4);  // every matrix but embedding and head
        }
      }
    }
  }
}

TEST(StoredFormats, dummies_that_are_held_have_the_formats_fill) {
  for (const Case& c : cases()) {
    const ModelShape shape = shape_of(c);
    const TemporaryFolder folder;
    write_tensors(folder / "model.safetensors", random_stored(shape, 4));
    const ShardPlan plan(shape, {.ranks = 5, .dummies = Dummies::kHeld});
    int row_fill = 0, column_fill = 0;
    for (const Loaded& loaded : load(Checkpoint::open(folder.path()), plan, 4)) {
      const LocalTensor& local = loaded.tensor;
      if (!is_block(local.type)) continue;
      const BlockShape block = block_shape(local.type);
      const int64_t blocks = local.columns.extent / block.elements;
      for (int64_t b = 0; b < local.rows.extent * blocks; ++b) {
        const auto covers = [](const AxisMap& map, int64_t at) {
          return std::ranges::any_of(map.real, [at](const Span& s) { return at >= s.local && at < s.local + s.count; });
        };
        const bool row = covers(local.rows, b / blocks), column = covers(local.columns, b % blocks * block.elements);
        if (row && column) continue;
        (row ? column_fill : row_fill) += 1;
        const std::byte* at = loaded.bytes.data() + b * block.bytes;
        int first = 1;
        if (local.type == DType::kMxfp4) {
          // 2^-127 beside real codes: a row's largest exponent stays what it was.
          ASSERT_EQ(at[0], row ? std::byte{0} : std::byte{0x7f}) << local.name;
        } else {
          float scale;
          std::memcpy(&scale, at, first = 4);
          ASSERT_EQ(scale, 1.0f) << local.name;
        }
        for (int i = first; i < block.bytes; ++i) ASSERT_EQ(at[i], std::byte{0}) << local.name;
      }
    }
    EXPECT_GT(row_fill, 0) << c.name;
    if (c.name.starts_with("MXFP4")) {
      EXPECT_GT(column_fill, 0) << c.name;
    }
  }
}

TEST(StoredFormats, a_tensor_that_was_left_in_a_float_type_is_taken_as_it_is) {
  const ModelShape shape = shape_of(cases()[0]);
  const TemporaryFolder folder;
  const TensorMap plain = random_tensors(shape, 5);
  write_tensors(folder / "model.safetensors", plain);
  for (const Loaded& loaded : load(Checkpoint::open(folder.path()), ShardPlan(shape, {}), 0)) {
    EXPECT_EQ(loaded.bytes, plain.at(loaded.tensor.name).bytes);
  }
}

class RefusedFormats : public testing::Test {
 protected:
  // The message, of a checkpoint of case `index` that `damage` has changed.
  template <class F>
  std::string message(size_t index, const F& damage) {
    const ModelShape shape = shape_of(cases()[index]);
    TensorMap tensors = random_stored(shape, 6);
    damage(tensors);
    const TemporaryFolder folder;
    write_tensors(folder / "model.safetensors", tensors);
    return model_error([&] { load(Checkpoint::open(folder.path()), ShardPlan(shape, {.ranks = 2}), 1); });
  }
  static void expect_parts(const std::string& message, std::initializer_list<std::string_view> parts) {
    for (std::string_view part : parts)
      EXPECT_NE(message.find(part), message.npos) << '"' << message << "\" lacks " << part;
  }
  static void resize(NamedTensor& tensor, std::vector<int64_t> shape) {
    tensor.shape = std::move(shape);
    tensor.bytes.resize(static_cast<size_t>(count_of(tensor.shape) * dtype_bytes(tensor.type)));
  }

  const std::string up_ = "model.layers.1.mlp.up_proj";
};

TEST_F(RefusedFormats, codes_without_scales) {
  const std::string found = message(0, [&](TensorMap& t) { t.erase(up_ + ".weight_scale"); });
  expect_parts(found,
               {"tensor model.layers.1.mlp.up_proj.weight is there without", "up_proj.weight_scale", "MXFP4 (Quark)"});
}

TEST_F(RefusedFormats, scales_without_codes) {
  const std::string found = message(3, [&](TensorMap& t) { t.erase(up_ + ".weight"); });
  expect_parts(found, {"up_proj.weight_scale_inv is there without", "up_proj.weight;"});
}

TEST_F(RefusedFormats, neither) {
  const std::string found = message(0, [&](TensorMap& t) { t.erase(up_ + ".weight_scale"), t.erase(up_ + ".weight"); });
  expect_parts(found, {"rule up_proj: found 3 tensors, config.json predicts 4", "up_proj.weight is missing"});
}

TEST_F(RefusedFormats, scales_beside_a_float_tensor) {
  const std::string found = message(0, [&](TensorMap& t) {
    NamedTensor& up = t.at(up_ + ".weight");
    up.type = DType::kBF16;
    resize(up, {288, 96});
  });
  expect_parts(found, {"up_proj.weight is BF16, and there is", "up_proj.weight_scale, too"});
}

TEST_F(RefusedFormats, scales_of_a_wrong_shape) {
  const std::string found = message(0, [&](TensorMap& t) { resize(t.at(up_ + ".weight_scale"), {288, 2}); });
  expect_parts(found, {"up_proj.weight_scale has the shape [288, 2]", "makes it [288, 3]"});
  expect_parts(message(3,
                       [&](TensorMap& t) {
                         resize(t.at(up_ + ".weight_scale_inv"), {2, 1});
                       }),
               {"[2, 1]", "[3, 1]"});
  expect_parts(message(5,
                       [&](TensorMap& t) {
                         resize(t.at(up_ + ".weight_scale"), {288, 2});
                       }),
               {"[288, 2]", "[288, 1]"});
}

TEST_F(RefusedFormats, codes_of_a_wrong_shape) {
  const std::string found = message(0, [&](TensorMap& t) { resize(t.at(up_ + ".weight"), {288, 96}); });
  expect_parts(found, {"up_proj.weight has the shape [288, 96]", "makes it [288, 48]"});
}

TEST_F(RefusedFormats, scales_of_a_wrong_type) {
  const std::string found = message(3, [&](TensorMap& t) {
    NamedTensor& scales = t.at(up_ + ".weight_scale_inv");
    scales.type = DType::kF16;
    resize(scales, scales.shape);
  });
  expect_parts(found, {"up_proj.weight_scale_inv is F16; expected F32 or BF16", "FP8 128x128"});
}

TEST_F(RefusedFormats, codes_of_another_format) {
  const std::string found = message(0, [&](TensorMap& t) { t.at(up_ + ".weight").type = DType::kF8E4M3; });
  expect_parts(found, {"up_proj.weight is F8_E4M3; expected U8", "MXFP4 (Quark)"});
}

TEST_F(RefusedFormats, codes_of_a_module_that_the_config_excludes) {
  const std::string found = message(0, [&](TensorMap& t) {
    NamedTensor& head = t.at("lm_head.weight");
    head.type = DType::kU8;
    resize(head, head.shape);
  });
  expect_parts(found, {"lm_head.weight is U8, and config.json gives its module no format"});
}

TEST_F(RefusedFormats, nan_scales) {
  for (size_t index : {0u, 1u, 2u}) {
    const std::string scales = index == 2 ? ".weight_scales" : ".weight_scale";
    const std::string found = message(index, [&](TensorMap& t) { t.at(up_ + scales).bytes.back() = std::byte{0xff}; });
    expect_parts(found, {"tensor model.layers.1.mlp.up_proj.weight", "infinite or NaN"});
  }
  const std::string found = message(3, [&](TensorMap& t) {
    NamedTensor& scales = t.at(up_ + ".weight_scale_inv");
    scales.bytes.end()[-1] = std::byte{0x7f}, scales.bytes.end()[-2] = std::byte{0xc0};
  });
  expect_parts(found, {"up_proj.weight", "infinite or NaN"});
}

TEST_F(RefusedFormats, nan_codes_of_fp8) {
  for (std::byte code : {std::byte{0x7f}, std::byte{0xff}}) {
    const std::string found = message(5, [&](TensorMap& t) { t.at(up_ + ".weight").bytes.back() = code; });
    expect_parts(found, {"up_proj.weight has a block whose scale or element is infinite or NaN"});
  }
}

TEST_F(RefusedFormats, columns_that_are_no_whole_blocks_of_mxfp4) {
  const ModelShape shape =
      parse(config("llama", {{"intermediate_size", "80"}, {"quantization_config", cases()[0].config}}));
  const TemporaryFolder folder;
  TensorMap tensors = random_tensors(shape, 7);
  for (int layer = 0; layer < 4; ++layer) {
    const std::string module = fmt::format("model.layers.{}.mlp.down_proj", layer);
    tensors[module + ".weight"] = {DType::kU8, {96, 40}, std::vector<std::byte>(96 * 40)};
    tensors[module + ".weight_scale"] = {DType::kU8, {96, 3}, std::vector<std::byte>(96 * 3)};
  }
  write_tensors(folder / "model.safetensors", tensors);
  expect_parts(model_error([&] { check_checkpoint(Checkpoint::open(folder.path()), ShardPlan(shape, {})); }),
               {"down_proj.weight_scale: 80 columns of the matrix do not come out whole in 32s"});
}

TEST_F(RefusedFormats, a_file_that_shrinks_while_it_is_read) {
  const ModelShape shape = shape_of(cases()[3]);
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", random_stored(shape, 8));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  int tensors = 0;
  Loaded kept;
  const std::string found = model_error([&] {
    load_shard(checkpoint, ShardPlan(shape, {}), 0, [&](const LocalTensor& tensor) {
      if (is_block(tensor.type) && ++tensors == 5) std::filesystem::resize_file(folder / "model.safetensors", 10);
      kept = {tensor, {}};
      return std::make_unique<KeepingSink>(&kept);
    });
  });
  expect_parts(found, {"file shrank"});
  EXPECT_EQ(tensors, 5);
}

}  // namespace
}  // namespace coprime
