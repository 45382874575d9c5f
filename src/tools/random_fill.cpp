#include "tools/random_fill.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/hash.h"

namespace coprime {
namespace {

// Loops over whole blocks of a constant length, so that the compiler makes vectors of them.
constexpr size_t kBlock = kFillBlock;
using Words = std::array<uint32_t, kBlock>;

// 32 random bits for each of `Count` counters from 0 on: the finaliser of MurmurHash3, between two parts of the key.
template <size_t Count>
void random_words(uint64_t key, Words& words) {
  const auto before = static_cast<uint32_t>(key), after = static_cast<uint32_t>(key >> 32);
  for (uint32_t i = 0; i < Count; ++i) {
    uint32_t h = (i * 0x9e3779b9u) ^ before;
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    h ^= h >> 16;
    words[i] = h + after;
  }
}

// Spreads consecutive blocks' keys apart (the finaliser of splitmix64).
uint64_t block_key(uint64_t key, uint64_t block) {
  uint64_t z = key + (block + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The sum of a word's four bytes less its mean: of variance 4 * (256^2 - 1) / 12.
int32_t byte_sum(uint32_t word) {
  const uint32_t pairs = (word & 0x00ff00ff) + ((word >> 8) & 0x00ff00ff);
  return static_cast<int32_t>((pairs & 0xffff) + (pairs >> 16)) - 510;
}
constexpr float kByteSumDeviation = 147.80053f;

void normal(const RandomContent& content, const Words& words, std::array<float, kBlock>& values) {
  const float scale = content.spread / kByteSumDeviation, center = content.center;
  for (size_t i = 0; i < kBlock; ++i) values[i] = static_cast<float>(byte_sum(words[i])) * scale + center;
}

void uniform(const RandomContent& content, const Words& words, std::array<float, kBlock>& values) {
  const float scale = content.spread / 32768.0f, center = content.center;
  for (size_t i = 0; i < kBlock; ++i)
    values[i] = static_cast<float>(static_cast<int32_t>(words[i] >> 16) - 32768) * scale + center;
}

// Of finite values: to nearest, ties to even.
void to_bf16(const std::array<float, kBlock>& values, std::array<uint16_t, kBlock>& out) {
  for (size_t i = 0; i < kBlock; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(values[i]);
    out[i] = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
}

void e8m0(const RandomContent& content, std::array<uint8_t, kBlock>& bytes) {
  const int bias = 127 + static_cast<int>(content.center);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(bias + (byte < 64 ? 1 : 0) - (byte >= 192 ? 1 : 0));
}

// 0x7f and 0xff are NaN.
void e4m3(std::array<uint8_t, kBlock>& bytes) {
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(byte - ((byte & 0x7f) == 0x7f ? 1 : 0));
}

// One block, `bytes` of it from its beginning on.
void fill_block(const RandomContent& content, uint64_t key, std::byte* out, size_t bytes) {
  alignas(64) Words words;
  if (content_bytes(content.kind) == 1) {
    alignas(64) std::array<uint8_t, kBlock> codes;
    random_words<kBlock / 4>(key, words);
    std::memcpy(codes.data(), words.data(), kBlock);
    if (content.kind == Content::kE8m0Scales) e8m0(content, codes);
    if (content.kind == Content::kE4m3) e4m3(codes);
    std::memcpy(out, codes.data(), bytes);
    return;
  }
  alignas(64) std::array<float, kBlock> values;
  random_words<kBlock>(key, words);
  const bool bell = content.kind == Content::kNormalF32 || content.kind == Content::kNormalBf16;
  bell ? normal(content, words, values) : uniform(content, words, values);
  if (content_bytes(content.kind) == 4) {
    std::memcpy(out, values.data(), bytes);
    return;
  }
  alignas(64) std::array<uint16_t, kBlock> halves;
  to_bf16(values, halves);
  std::memcpy(out, halves.data(), bytes);
}

}  // namespace

uint64_t content_key(uint64_t seed, std::string_view tensor) {
  return hash_bytes(std::as_bytes(std::span(tensor)), seed);
}

void fill_random(const RandomContent& content, uint64_t key, int64_t first, std::span<std::byte> out) {
  COPRIME_CHECK(first % kFillBlock == 0, "a part that starts at element {}", first);
  const size_t block_bytes = kBlock * static_cast<size_t>(content_bytes(content.kind));
  auto block = static_cast<uint64_t>(first / kFillBlock);
  for (size_t at = 0; at < out.size(); at += block_bytes, ++block)
    fill_block(content, block_key(key, block), out.data() + at, std::min(block_bytes, out.size() - at));
}

}  // namespace coprime
