// Every format's numbers, against those of PyPI's package `gguf`: tests/data/block_formats.txt, whose script says what
// its lines stand for.
#include "tensor/block_formats.h"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace coprime {
namespace {

// The number that GGUF gives a type, and where its half-precision scales stand.
struct Format {
  DType type;
  uint64_t number;
  std::vector<size_t> halves;
};
const std::vector<Format>& formats() {
  static const std::vector<Format> kFormats = {
      {DType::kF32, 0, {}},         {DType::kF16, 1, {0}},     {DType::kBF16, 30, {}},     {DType::kQ4_0, 2, {0}},
      {DType::kQ4_1, 3, {0, 2}},    {DType::kQ5_0, 6, {0}},    {DType::kQ5_1, 7, {0, 2}},  {DType::kQ8_0, 8, {0}},
      {DType::kQ2_K, 10, {80, 82}}, {DType::kQ3_K, 11, {108}}, {DType::kQ4_K, 12, {0, 2}}, {DType::kQ5_K, 13, {0, 2}},
      {DType::kQ6_K, 14, {208}},    {DType::kMxfp4, 39, {}},
  };
  return kFormats;
}

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

std::vector<std::byte> splitmix_bytes(uint64_t seed, size_t count) {
  std::vector<std::byte> bytes;
  while (bytes.size() < count) {
    uint64_t z = seed += kGolden;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<std::byte>(z >> (8 * i)));
  }
  bytes.resize(count);
  return bytes;
}

std::vector<uint32_t> bits_of(DType type, const std::vector<std::byte>& bytes) {
  const BlockShape shape = block_shape(type);
  const size_t blocks = bytes.size() / static_cast<size_t>(shape.bytes);
  std::vector<float> values(blocks * static_cast<size_t>(shape.elements));
  dequantize(type, bytes.data(), static_cast<int64_t>(blocks), values.data());
  std::vector<uint32_t> bits;
  for (float value : values) bits.push_back(value != value ? 0x7fc00000u : std::bit_cast<uint32_t>(value));
  return bits;
}

template <class T>
std::vector<T> from_hex(const std::string& text) {
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// The lines of one kind, by the type's name: their words after it.
std::map<std::string, std::vector<std::string>> lines_of(const std::string& kind) {
  std::map<std::string, std::vector<std::string>> lines;
  std::ifstream file(COPRIME_SOURCE_DIR "/tests/data/block_formats.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, found, word;
    words >> name >> found;
    if (found != kind) continue;
    while (words >> word) lines[name].push_back(word);
  }
  return lines;
}

TEST(BlockFormats, chosen_blocks_with_extreme_scales_have_the_bits_of_the_public_package) {
  const auto lines = lines_of("blocks");
  for (const Format& format : formats()) {
    const auto& words = lines.at(std::string(dtype_name(format.type)));
    const auto expected = from_hex<uint32_t>(words.at(2));
    ASSERT_GE(expected.size(), 2u);
    EXPECT_EQ(bits_of(format.type, from_hex<std::byte>(words.at(0))), expected) << dtype_name(format.type);
  }
}

TEST(BlockFormats, random_blocks_have_the_bits_of_the_public_package) {
  const auto lines = lines_of("random");
  for (const Format& format : formats()) {
    const auto& words = lines.at(std::string(dtype_name(format.type)));
    const size_t blocks = std::stoul(words.at(0)), size = static_cast<size_t>(block_shape(format.type).bytes);
    ASSERT_GE(blocks, 2000u);
    std::vector<std::byte> bytes = splitmix_bytes(format.number, blocks * size);
    for (size_t block = 0; block < blocks; ++block) {
      for (size_t half : format.halves) {
        std::byte& high = bytes[block * size + half + 1];
        if ((high & std::byte{0x7c}) == std::byte{0x7c}) high &= std::byte{0xfb};
      }
    }
    uint64_t hash = 0, weight = 1;
    for (uint32_t bits : bits_of(format.type, bytes)) {
      hash += bits * (weight * kGolden);
      weight += 2;
    }
    EXPECT_EQ(fmt::format("{:016x}", hash), words.at(1)) << dtype_name(format.type);
  }
}

TEST(BlockFormats, a_scale_that_is_no_finite_number_is_found) {
  for (const Format& format : formats()) {
    const auto size = static_cast<size_t>(block_shape(format.type).bytes);
    std::vector<std::byte> bytes(5 * size, std::byte{0x7b});  // 0x7b7b is finite
    EXPECT_EQ(find_bad_scale(format.type, bytes.data(), 5), -1) << dtype_name(format.type);
    if (!is_block(format.type)) continue;
    for (size_t half : format.halves) {
      for (std::byte high : {std::byte{0x7c}, std::byte{0xff}}) {
        auto damaged = bytes;
        damaged[3 * size + half + 1] = high;
        EXPECT_EQ(find_bad_scale(format.type, damaged.data(), 5), 3) << dtype_name(format.type);
        EXPECT_EQ(find_bad_scale(format.type, damaged.data(), 3), -1) << dtype_name(format.type);
      }
    }
    if (format.type == DType::kMxfp4) bytes[2 * size] = std::byte{0xff};
    EXPECT_EQ(find_bad_scale(format.type, bytes.data(), 5), format.type == DType::kMxfp4 ? 2 : -1);
  }
}

TEST(BlockFormats, bytes_of_zeros_are_zeros_in_every_format) {
  for (const Format& format : formats()) {
    const std::vector<std::byte> zeros(static_cast<size_t>(block_shape(format.type).bytes));
    for (uint32_t bits : bits_of(format.type, zeros)) ASSERT_EQ(bits & 0x7fffffff, 0u) << dtype_name(format.type);
  }
}

}  // namespace
}  // namespace coprime
