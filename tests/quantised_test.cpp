// Models in MXFP4 and FP8, as `coprime quantize` writes them, in whole worlds: against the same numbers in F32, which
// are computed here from the formats' definitions, at every rank count and in every arithmetic.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/number_formats.h"
#include "checkpoint/test_checkpoints.h"
#include "json/json.h"
#include "tools/quantize.h"
#include "worlds.h"

namespace coprime {
namespace {

// ---- the numbers of a quantised checkpoint, without coprime's own reading

double e4m3(int code) {
  const int e = code >> 3 & 15, m = code & 7;
  const double magnitude = e == 0 ? m * std::exp2(-9) : (8 + m) * std::exp2(e - 10);
  return code & 0x80 ? -magnitude : magnitude;
}
double e2m1(int code) {
  constexpr double kValues[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}

std::vector<std::byte> bytes_of(const Checkpoint::Located& at) {
  std::vector<std::byte> bytes(at.tensor->bytes);
  at.file->read(at.tensor->offset, bytes);
  return bytes;
}

std::vector<float> widened(const Checkpoint::Located& codes, const Checkpoint::Located& scales) {
  const std::vector<std::byte> code = bytes_of(codes), scale = bytes_of(scales);
  const bool nibbles = codes.tensor->type == DType::kU8;
  const size_t rows = static_cast<size_t>(codes.tensor->shape[0]), columns = code.size() / rows * (nibbles ? 2 : 1);
  const size_t scale_rows = static_cast<size_t>(scales.tensor->shape[0]),
               scale_columns = static_cast<size_t>(scales.tensor->shape[1]);
  std::vector<float> numbers;
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      if (nibbles) {
        const int exponent = static_cast<int>(scale[r * scale_columns + c / 32]) - 127;
        const int byte = static_cast<int>(code[(r * columns + c) / 2]);
        numbers.push_back(static_cast<float>(e2m1(c % 2 == 0 ? byte & 15 : byte >> 4) * std::exp2(exponent)));
      } else {
        const size_t place = scale_rows == rows ? r : r / 128 * scale_columns + c / 128;
        float value;
        std::memcpy(&value, scale.data() + 4 * place, 4);
        numbers.push_back(static_cast<float>(e4m3(static_cast<int>(code[r * columns + c])) * value));
      }
    }
  }
  return numbers;
}

// The same model with the matrices in F32 and no word of formats.
void write_widened(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::filesystem::create_directory(to);
  auto config = nlohmann::json::parse(read_text_file(from / "config.json", 1 << 20));
  config.erase("quantization_config");
  write_bytes(to / "config.json", config.dump());
  const Checkpoint checkpoint = Checkpoint::open(from);
  std::map<std::string, Checkpoint::Located> all;
  for (const Checkpoint::Located& at : checkpoint.tensors()) all[at.tensor->name] = at;
  TensorMap tensors;
  for (const auto& [name, at] : all) {
    if (name.find("weight_scale") != name.npos) continue;
    const auto scales = all.contains(name + "_scale_inv") ? all.find(name + "_scale_inv") : all.find(name + "_scale");
    if (scales == all.end()) {
      tensors[name] = {at.tensor->type, at.tensor->shape, bytes_of(at)};
      continue;
    }
    const std::vector<float> numbers = widened(at, scales->second);
    const auto bytes = std::as_bytes(std::span(numbers));
    const int64_t rows = at.tensor->shape[0];
    tensors[name] = {DType::kF32, {rows, static_cast<int64_t>(numbers.size()) / rows}, {bytes.begin(), bytes.end()}};
  }
  write_tensors(to / "model.safetensors", tensors);
}

// ---- worlds

struct Case {
  QuantizeFormat format;
  const char* model;
};

class Quantised : public testing::TestWithParam<Case> {
 protected:
  Quantised() {
    quantize_model({.model = golden_.directory, .out = folder_ / "quantised", .format = GetParam().format},
                   [](uint64_t, uint64_t) {});
  }
  WorldOptions world(int ranks, MathMode math, const char* which = "quantised") const {
    WorldOptions options = thread_world(golden_, ranks);
    options.model = folder_ / which;
    options.math = math;
    return options;
  }
  std::vector<float> logits(int ranks, MathMode math, bool exact = false, Dummies dummies = Dummies::kSkipped) const {
    WorldOptions options = world(ranks, math);
    options.plan.exact = exact;
    options.plan.dummies = dummies;
    return logits_of(options, golden_.cases[0]);
  }

  const Golden golden_ = [] {
    Golden golden = read_golden(GetParam().model);
    GoldenCase& c = golden.cases[0];
    if (c.batch == 1) {
      c.length = std::min<int64_t>(c.length, 24);
      c.ids.resize(static_cast<size_t>(c.length));
    }
    return golden;
  }();
  const TemporaryFolder folder_;
};

float size_of(std::span<const float> logits) {
  float size = 0;
  for (float logit : logits) size = std::max(size, std::abs(logit));
  return size;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(Quantised, logits_are_those_of_the_same_numbers_in_f32_at_every_rank_count) {
  write_widened(folder_ / "quantised", folder_ / "widened");
  const auto expected = logits_of(world(1, MathMode::kF32, "widened"), golden_.cases[0]);
  const float size = size_of(expected);
  ASSERT_GT(size, 0.1f);
  for (int ranks : {1, 2, 3, 5, 7}) {
    EXPECT_LE(largest_difference(logits(ranks, MathMode::kF32), expected), 2e-5f * size) << ranks;
    EXPECT_LE(largest_difference(logits(ranks, MathMode::kSplit), expected), 1e-3f * size) << ranks;
  }
  EXPECT_LE(largest_difference(logits(3, MathMode::kF32, false, Dummies::kHeld), expected), 2e-5f * size);
  EXPECT_LE(largest_difference(logits(1, MathMode::kFast), expected), 1e-1f * size);
}

TEST_P(Quantised, exact_mode_keeps_the_bits_in_every_arithmetic) {
  for (MathMode math : {MathMode::kF32, MathMode::kSplit, MathMode::kFast}) {
    const auto expected = logits(1, math, true);
    for (int ranks : {2, 3, 5, 7}) EXPECT_TRUE(same_bits(logits(ranks, math, true), expected)) << ranks;
  }
}

TEST_P(Quantised, greedy_text_is_the_same_at_every_rank_count) {
  const auto texts = [&](int ranks) {
    Front front(world(ranks, MathMode::kSplit));
    std::vector<std::vector<int32_t>> all;
    for (size_t i = 0; i < std::min<size_t>(golden_.greedy.size(), 2); ++i) {
      GenerationRequest request{.prompt = golden_.greedy[i].prompt, .max_tokens = 24, .eos = golden_.eos};
      request.sampling.temperature = 0;
      all.push_back(generate(front, request).ids);
    }
    return all;
  };
  const auto expected = texts(1);
  for (int ranks : {2, 3, 5, 7}) EXPECT_EQ(texts(ranks), expected) << ranks;
}

INSTANTIATE_TEST_SUITE_P(Formats, Quantised,
                         testing::Values(Case{QuantizeFormat::kMxfp4, "mini-qwen35"},
                                         Case{QuantizeFormat::kFp8Block, "mini-qwen35"},
                                         Case{QuantizeFormat::kFp8Channel, "mini-qwen35"},
                                         Case{QuantizeFormat::kFp8Block, "qwen2-14q2kv-bias"},
                                         Case{QuantizeFormat::kFp8Channel, "llama-9q3kv-tied"}),
                         [](const auto& which) {
                           std::string name = which.param.model;
                           std::ranges::replace(name, '-', '_');
                           const QuantizeFormat format = which.param.format;
                           return name + (format == QuantizeFormat::kMxfp4      ? "_mxfp4"
                                          : format == QuantizeFormat::kFp8Block ? "_fp8_block"
                                                                                : "_fp8_channel");
                         });

}  // namespace
}  // namespace coprime
