#include "tools/random_fill.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/hash.h"
#include "base/number_formats.h"

namespace coprime {
namespace {

std::vector<std::byte> filled(const RandomContent& content, int64_t count, uint64_t key = content_key(1, "a")) {
  std::vector<std::byte> bytes(static_cast<size_t>(count * content_bytes(content.kind)));
  fill_random(content, key, 0, bytes);
  return bytes;
}

std::vector<double> numbers(const RandomContent& content, int64_t count) {
  const std::vector<std::byte> bytes = filled(content, count);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) {
    const auto* at = bytes.data() + i * content_bytes(content.kind);
    uint32_t word = 0;
    std::memcpy(&word, at, static_cast<size_t>(content_bytes(content.kind)));
    const auto byte = static_cast<uint8_t>(word);
    switch (content.kind) {
      case Content::kNormalF32:
      case Content::kUniformF32:
        values.push_back(static_cast<double>(std::bit_cast<float>(word)));
        break;
      case Content::kNormalBf16:
      case Content::kUniformBf16:
        values.push_back(static_cast<double>(bf16_to_f32(static_cast<uint16_t>(word))));
        break;
      case Content::kE2m1Pairs:
        for (const int code : {byte & 15, byte >> 4}) {
          constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
          values.push_back(code < 8 ? kMagnitudes[code] : -kMagnitudes[code - 8]);
        }
        break;
      case Content::kE8m0Scales:
        values.push_back(std::ldexp(1.0, byte - 127));
        break;
      case Content::kE4m3: {
        const int exponent = (byte >> 3) & 15, mantissa = byte & 7;
        EXPECT_NE(byte & 0x7f, 0x7f);  // NaN
        const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
        values.push_back(byte < 128 ? magnitude : -magnitude);
        break;
      }
    }
  }
  return values;
}

struct Moments {
  double mean, deviation;
};
Moments moments(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (double value : values) sum += value, squares += value * value;
  const double n = static_cast<double>(values.size()), mean = sum / n;
  return {mean, std::sqrt(squares / n - mean * mean)};
}

TEST(RandomFill, has_the_mean_and_the_deviation_that_were_asked_for) {
  constexpr int64_t kCount = 1 << 20;
  for (const Content kind : {Content::kNormalF32, Content::kNormalBf16}) {
    const Moments found = moments(numbers({kind, 1.0f, 0.05f}, kCount));
    EXPECT_NEAR(found.mean, 1.0, 3e-4);
    EXPECT_NEAR(found.deviation, 0.05, 3e-4);
  }
  for (const Content kind : {Content::kUniformF32, Content::kUniformBf16}) {
    const Moments found = moments(numbers({kind, -3.0f, 2.0f}, kCount));
    EXPECT_NEAR(found.mean, -3.0, 1e-2);
    EXPECT_NEAR(found.deviation, 2.0 / std::sqrt(3.0), 1e-2);
  }
  EXPECT_NEAR(moments(numbers({Content::kE2m1Pairs}, kCount)).deviation, kE2m1Deviation, 0.01);
  EXPECT_NEAR(moments(numbers({Content::kE4m3}, kCount)).deviation, kE4m3Deviation, 0.5);
  for (double scale : numbers({Content::kE8m0Scales, -7}, 4096))
    EXPECT_TRUE(scale == 0x1p-8 || scale == 0x1p-7 || scale == 0x1p-6) << scale;
}

// Adjacent elements, and the same element of adjacent blocks, have nothing to do with each other.
TEST(RandomFill, has_no_correlation_between_neighbours) {
  const std::vector<double> values = numbers({Content::kNormalF32, 0.0f, 1.0f}, 1 << 18);
  for (const size_t apart : {size_t{1}, size_t{2}, size_t{64}, static_cast<size_t>(kFillBlock)}) {
    double sum = 0;
    for (size_t i = 0; i + apart < values.size(); ++i) sum += values[i] * values[i + apart];
    EXPECT_LT(std::abs(sum) / static_cast<double>(values.size()), 0.01) << apart;
  }
}

TEST(RandomFill, a_part_holds_the_same_bytes_as_the_whole) {
  for (const Content kind : {Content::kNormalF32, Content::kUniformBf16, Content::kE2m1Pairs, Content::kE4m3}) {
    const RandomContent content{kind, 0.5f, 0.1f};
    const int64_t count = 5 * kFillBlock + 77;
    const std::vector<std::byte> whole = filled(content, count);
    std::vector<std::byte> part(static_cast<size_t>((count - 2 * kFillBlock) * content_bytes(kind)));
    fill_random(content, content_key(1, "a"), 2 * kFillBlock, part);
    EXPECT_TRUE(std::ranges::equal(part, std::span(whole).last(part.size())));
  }
}

// What scripts/oracles/random_fill.py computes with numpy.
TEST(RandomFill, makes_the_same_bytes_everywhere) {
  const auto fingerprint = [](const RandomContent& content) { return hash_bytes(filled(content, 3000)); };
  EXPECT_EQ(fingerprint({Content::kNormalF32, 1.0f, 0.05f}), 3088917390318448738u);
  EXPECT_EQ(fingerprint({Content::kNormalBf16, 0.0f, 0.02f}), 12529702810274944292u);
  EXPECT_EQ(fingerprint({Content::kUniformF32, -3.0f, 2.0f}), 14336081187122145772u);
  EXPECT_EQ(fingerprint({Content::kE2m1Pairs}), 10829229381975283615u);
  EXPECT_EQ(fingerprint({Content::kE8m0Scales, -7}), 4084936929084423077u);
  EXPECT_EQ(fingerprint({Content::kE4m3}), 18353128918881137765u);
}

TEST(RandomFill, differs_by_seed_and_by_name) {
  const RandomContent content{Content::kNormalBf16, 0.0f, 0.02f};
  EXPECT_NE(filled(content, 100, content_key(1, "a")), filled(content, 100, content_key(2, "a")));
  EXPECT_NE(filled(content, 100, content_key(1, "a")), filled(content, 100, content_key(1, "b")));
}

}  // namespace
}  // namespace coprime
