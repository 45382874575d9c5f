#include "tensor/block_formats.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/number_formats.h"
#include "base/small_floats.h"

namespace coprime {
namespace {

constexpr int kFp8Elements = block_shape(DType::kFp8).elements;

template <class T>
T read_as(const uint8_t* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float half_at(const uint8_t* bytes) { return f16_to_f32(read_as<uint16_t>(bytes)); }

// Each function: one block.

void f32(const uint8_t* b, float* x) { x[0] = read_as<float>(b); }
void f16(const uint8_t* b, float* x) { x[0] = half_at(b); }
void bf16(const uint8_t* b, float* x) { x[0] = bf16_to_f32(read_as<uint16_t>(b)); }

// Sixteen bytes of nibbles: the low ones are elements 0..15, the high ones 16..31.
void q4_0(const uint8_t* b, float* x) {
  const float d = half_at(b);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * static_cast<float>((b[2 + j] & 15) - 8);
    x[j + 16] = d * static_cast<float>((b[2 + j] >> 4) - 8);
  }
}

void q4_1(const uint8_t* b, float* x) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * static_cast<float>(b[4 + j] & 15) + m;
    x[j + 16] = d * static_cast<float>(b[4 + j] >> 4) + m;
  }
}

// A fifth bit for each element, in one word.
void q5_0(const uint8_t* b, float* x) {
  const float d = half_at(b);
  const auto high = read_as<uint32_t>(b + 2);
  for (int j = 0; j < 16; ++j) {
    const int low = b[6 + j] & 15, upper = b[6 + j] >> 4;
    x[j] = d * static_cast<float>((low | static_cast<int>(high >> j & 1) << 4) - 16);
    x[j + 16] = d * static_cast<float>((upper | static_cast<int>(high >> (j + 16) & 1) << 4) - 16);
  }
}

void q5_1(const uint8_t* b, float* x) {
  const float d = half_at(b), m = half_at(b + 2);
  const auto high = read_as<uint32_t>(b + 4);
  for (int j = 0; j < 16; ++j) {
    const int low = b[8 + j] & 15, upper = b[8 + j] >> 4;
    x[j] = d * static_cast<float>(low | static_cast<int>(high >> j & 1) << 4) + m;
    x[j + 16] = d * static_cast<float>(upper | static_cast<int>(high >> (j + 16) & 1) << 4) + m;
  }
}

void q8_0(const uint8_t* b, float* x) {
  const float d = half_at(b);
  for (int j = 0; j < 32; ++j) x[j] = static_cast<float>(static_cast<int8_t>(b[2 + j])) * d;
}

// 16 parts of 16: a byte with scale and minimum each; two bits an element, in 64 bytes. The two halves of 128 have 32
// bytes each, whose four pairs of bits are four runs of 32.
void q2_k(const uint8_t* b, float* x) {
  const float d = half_at(b + 80), minimum = half_at(b + 82);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i % 128 / 32, part = i / 16;
    const int q = b[16 + 32 * half + i % 32] >> (2 * run) & 3;
    const float scale = d * static_cast<float>(b[part] & 15), offset = minimum * static_cast<float>(b[part] >> 4);
    x[i] = scale * static_cast<float>(q) - offset;
  }
}

// As Q2_K, with a third bit (set: nothing is taken off; clear: 4 is), and scales of six bits in 12 bytes.
void q3_k(const uint8_t* b, float* x) {
  const uint8_t *high = b, *low = b + 32, *scales = b + 96;
  const float d = half_at(b + 108);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i % 128 / 32, part = i / 16;
    const int scale = (scales[part % 8] >> (part / 8 * 4) & 15) | (scales[8 + part % 4] >> (part / 4 * 2) & 3) << 4;
    const int q = (low[32 * half + i % 32] >> (2 * run) & 3) - (high[i % 32] >> (4 * half + run) & 1 ? 0 : 4);
    x[i] = d * static_cast<float>(scale - 32) * static_cast<float>(q);
  }
}

// Eight scales and minima of six bits in 12 bytes.
struct ScaleAndMinimum {
  int scale, minimum;
};
ScaleAndMinimum scale_of_part(const uint8_t* s, int part) {
  if (part < 4) return {s[part] & 63, s[part + 4] & 63};
  return {(s[part + 4] & 15) | s[part - 4] >> 6 << 4, s[part + 4] >> 4 | s[part] >> 6 << 4};
}

// Eight parts of 32; parts 2p and 2p + 1 share 32 bytes: low nibbles, high nibbles. `high`: a fifth bit, or nullptr.
void q4_or_q5_k(const uint8_t* b, const uint8_t* high, const uint8_t* nibbles, float* x) {
  const float d = half_at(b), minimum = half_at(b + 2);
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum six = scale_of_part(b + 4, part);
    const float scale = d * static_cast<float>(six.scale), offset = minimum * static_cast<float>(six.minimum);
    for (int l = 0; l < 32; ++l) {
      int q = nibbles[32 * (part / 2) + l] >> (part % 2 * 4) & 15;
      if (high != nullptr) q |= (high[l] >> part & 1) << 4;
      x[32 * part + l] = scale * static_cast<float>(q) - offset;
    }
  }
}
void q4_k(const uint8_t* b, float* x) { q4_or_q5_k(b, nullptr, b + 16, x); }
void q5_k(const uint8_t* b, float* x) { q4_or_q5_k(b, b + 16, b + 48, x); }

// 16 parts of 16 with signed scales. A half of 128 has 64 bytes of low nibbles and 32 of high pairs, for four runs
// of 32.
void q6_k(const uint8_t* b, float* x) {
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, run = i % 128 / 32;
    const int low = b[64 * half + 32 * (run % 2) + i % 32] >> (run / 2 * 4) & 15;
    const int upper = b[128 + 32 * half + i % 32] >> (2 * run) & 3;
    const auto scale = static_cast<float>(static_cast<int8_t>(b[192 + i / 16]));
    x[i] = d * scale * static_cast<float>((low | upper << 4) - 32);
  }
}

// Twice the values of e2m1, and half the scale: 2^(e - 128), finite for every e.
void mxfp4(const uint8_t* b, float* x) {
  constexpr std::array<float, 16> kTwice = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  const uint32_t e = b[0];
  const float d = std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  for (int j = 0; j < 16; ++j) {
    x[j] = d * kTwice[b[1 + j] & 15];
    x[j + 16] = d * kTwice[b[1 + j] >> 4];
  }
}

void fp8(const uint8_t* b, float* x) {
  const auto scale = read_as<float>(b);
  for (int i = 0; i < kFp8Elements; ++i) x[i] = e4m3_to_f32(b[4 + i]) * scale;
}

using BlockFn = void (*)(const uint8_t*, float*);

template <BlockFn kBlock>
void each(DType type, const std::byte* from, int64_t blocks, float* to) {
  const BlockShape shape = block_shape(type);
  const auto* bytes = reinterpret_cast<const uint8_t*>(from);
  for (int64_t i = 0; i < blocks; ++i, bytes += shape.bytes, to += shape.elements) kBlock(bytes, to);
}

// Where a block's half-precision scales stand: the high byte of each; -1: none.
struct ScalePlaces {
  int first = -1, second = -1;
};
ScalePlaces scale_places(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
      return {1, -1};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {1, 3};
    case DType::kQ2_K:
      return {81, 83};
    case DType::kQ3_K:
      return {109, -1};
    case DType::kQ6_K:
      return {209, -1};
    default:
      return {};
  }
}

bool is_sound_fp8(const uint8_t* block) {
  int bad = 0;
  for (int i = 0; i < kFp8Elements; ++i) bad |= (block[4 + i] & 0x7f) == 0x7f;
  return bad == 0 && std::isfinite(read_as<float>(block));
}

}  // namespace

int64_t find_bad_scale(DType type, const std::byte* from, int64_t blocks) {
  const ScalePlaces places = scale_places(type);
  const int bytes = block_shape(type).bytes;
  const auto* block = reinterpret_cast<const uint8_t*>(from);
  for (int64_t i = 0; i < blocks; ++i, block += bytes) {
    for (int place : {places.first, places.second}) {
      if (place >= 0 && (block[place] & 0x7c) == 0x7c) return i;
    }
    if (type == DType::kMxfp4 && block[0] == 0xff) return i;
    if (type == DType::kFp8 && !is_sound_fp8(block)) return i;
  }
  return -1;
}

void dequantize(DType type, const std::byte* from, int64_t blocks, float* to) {
  switch (type) {
    case DType::kF32:
      return each<f32>(type, from, blocks, to);
    case DType::kF16:
      return each<f16>(type, from, blocks, to);
    case DType::kBF16:
      return each<bf16>(type, from, blocks, to);
    case DType::kQ4_0:
      return each<q4_0>(type, from, blocks, to);
    case DType::kQ4_1:
      return each<q4_1>(type, from, blocks, to);
    case DType::kQ5_0:
      return each<q5_0>(type, from, blocks, to);
    case DType::kQ5_1:
      return each<q5_1>(type, from, blocks, to);
    case DType::kQ8_0:
      return each<q8_0>(type, from, blocks, to);
    case DType::kQ2_K:
      return each<q2_k>(type, from, blocks, to);
    case DType::kQ3_K:
      return each<q3_k>(type, from, blocks, to);
    case DType::kQ4_K:
      return each<q4_k>(type, from, blocks, to);
    case DType::kQ5_K:
      return each<q5_k>(type, from, blocks, to);
    case DType::kQ6_K:
      return each<q6_k>(type, from, blocks, to);
    case DType::kMxfp4:
      return each<mxfp4>(type, from, blocks, to);
    case DType::kFp8:
      return each<fp8>(type, from, blocks, to);
    default:
      break;
  }
  COPRIME_CHECK(false, "no numbers: {}", dtype_name(type));
}

}  // namespace coprime
