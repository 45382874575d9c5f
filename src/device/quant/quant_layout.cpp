#include "device/quant/quant_layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/number_formats.h"

namespace coprime {
namespace {

const uint8_t* bytes_of(std::span<const std::byte> block) { return reinterpret_cast<const uint8_t*>(block.data()); }

uint16_t half_at(const uint8_t* bytes) { return static_cast<uint16_t>(bytes[0] | bytes[1] << 8); }

// ---- blocks of the file

// Bytes are taken eight at a time, as the fields of a word: they do not carry into each other where every field is
// masked after a shift down, and has room before one up.
constexpr int kWords = kQuantBlock / 8;
constexpr uint64_t every_byte(uint64_t value) { return 0x0101010101010101 * value; }

uint64_t word_at(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// Bit i of `bits` in byte i.
uint64_t spread_bits(uint64_t bits) {
  const uint64_t one_each = every_byte(bits) & 0x8040201008040201;
  return (one_each + every_byte(0x7f)) >> 7 & every_byte(1);
}

// 32 elements as the file has them: codes in the order of columns, and what belongs to them.
struct FileBlock {
  uint64_t code[kWords];            // a byte each
  uint16_t scale = 0, minimum = 0;  // f16 bits, or e8m0; of the block, or of the 256 that it lies in
  uint8_t factor[2] = {}, minimum_factor[2] = {};
};

// Nibbles of 16 bytes: elements 0 to 15 low, 16 to 31 high.
void split_nibbles(const uint8_t* quants, FileBlock& out) {
  for (int i = 0; i < 2; ++i) {
    const uint64_t word = word_at(quants + 8 * i);
    out.code[i] = word & every_byte(15);
    out.code[i + 2] = word >> 4 & every_byte(15);
  }
}

// The 6-bit factors of Q4_K and Q5_K, in 12 bytes.
void split_factors(const uint8_t* packed, int block, FileBlock& out) {
  if (block < 4) {
    out.factor[0] = packed[block] & 63;
    out.minimum_factor[0] = packed[block + 4] & 63;
  } else {
    out.factor[0] = static_cast<uint8_t>((packed[block + 4] & 15) | (packed[block - 4] >> 6) << 4);
    out.minimum_factor[0] = static_cast<uint8_t>(packed[block + 4] >> 4 | (packed[block] >> 6) << 4);
  }
}

void split_q5(const uint8_t* in, int header, FileBlock& out) {
  out.scale = half_at(in);
  if (header == 4) out.minimum = half_at(in + 2);
  uint32_t high;
  std::memcpy(&high, in + header, 4);
  split_nibbles(in + header + 4, out);
  for (int i = 0; i < kWords; ++i) out.code[i] |= spread_bits(high >> 8 * i & 255) << 4;
}

void split_q2_k(const uint8_t* in, int block, FileBlock& out) {
  out.scale = half_at(in + 80);
  out.minimum = half_at(in + 82);
  const uint8_t* quants = in + 16 + block / 4 * 32;
  for (int i = 0; i < kWords; ++i) out.code[i] = word_at(quants + 8 * i) >> 2 * (block % 4) & every_byte(3);
  for (int half = 0; half < 2; ++half) {
    out.factor[half] = in[2 * block + half] & 15;
    out.minimum_factor[half] = in[2 * block + half] >> 4;
  }
}

void split_q3_k(const uint8_t* in, int block, FileBlock& out) {
  out.scale = half_at(in + 108);
  const uint8_t *quants = in + 32 + block / 4 * 32, *factors = in + 96;
  for (int i = 0; i < kWords; ++i) {
    const uint64_t low = word_at(quants + 8 * i) >> 2 * (block % 4) & every_byte(3);
    out.code[i] = low | (word_at(in + 8 * i) >> block & every_byte(1)) << 2;
  }
  for (int half = 0; half < 2; ++half) {  // 16 factors: their low nibbles in 8 bytes, then two bits each in 4 bytes
    const int j = 2 * block + half;
    const int low = j < 8 ? factors[j] & 15 : factors[j - 8] >> 4, high = factors[8 + j % 4] >> 2 * (j / 4) & 3;
    out.factor[half] = static_cast<uint8_t>((low | high << 4) - 32);
  }
}

void split_q4_k(const uint8_t* in, int block, FileBlock& out) {
  out.scale = half_at(in);
  out.minimum = half_at(in + 2);
  split_factors(in + 4, block, out);
  const uint8_t* quants = in + 16 + block / 2 * 32;
  for (int i = 0; i < kWords; ++i) out.code[i] = word_at(quants + 8 * i) >> 4 * (block % 2) & every_byte(15);
}

void split_q5_k(const uint8_t* in, int block, FileBlock& out) {
  out.scale = half_at(in);
  out.minimum = half_at(in + 2);
  split_factors(in + 4, block, out);
  const uint8_t* quants = in + 48 + block / 2 * 32;
  for (int i = 0; i < kWords; ++i) {
    const uint64_t low = word_at(quants + 8 * i) >> 4 * (block % 2) & every_byte(15);
    out.code[i] = low | (word_at(in + 16 + 8 * i) >> block & every_byte(1)) << 4;
  }
}

void split_q6_k(const uint8_t* in, int block, FileBlock& out) {
  out.scale = half_at(in + 208);
  const int part = block / 4, quarter = block % 4;
  const uint8_t *low = in + 64 * part + 32 * (quarter % 2), *high = in + 128 + 32 * part;
  for (int i = 0; i < kWords; ++i) {
    const uint64_t nibbles = word_at(low + 8 * i) >> 4 * (quarter / 2) & every_byte(15);
    out.code[i] = nibbles | (word_at(high + 8 * i) >> 2 * quarter & every_byte(3)) << 4;
  }
  for (int half = 0; half < 2; ++half) out.factor[half] = in[192 + 2 * block + half];
}

// Block `block` of 32 of the file's block at `in`.
template <DType kType>
void split_block(const uint8_t* in, [[maybe_unused]] int block, FileBlock& out) {
  if constexpr (kType == DType::kQ5_0) {
    split_q5(in, 2, out);
  } else if constexpr (kType == DType::kQ5_1) {
    split_q5(in, 4, out);
  } else if constexpr (kType == DType::kQ2_K) {
    split_q2_k(in, block, out);
  } else if constexpr (kType == DType::kQ3_K) {
    split_q3_k(in, block, out);
  } else if constexpr (kType == DType::kQ4_K) {
    split_q4_k(in, block, out);
  } else if constexpr (kType == DType::kQ5_K) {
    split_q5_k(in, block, out);
  } else if constexpr (kType == DType::kQ6_K) {
    split_q6_k(in, block, out);
  } else if constexpr (kType == DType::kMxfp4) {
    out.scale = in[0];
    split_nibbles(in + 1, out);
  } else if constexpr (kType == DType::kQ8_0) {
    out.scale = half_at(in);
    for (int i = 0; i < kWords; ++i) out.code[i] = word_at(in + 2 + 8 * i) ^ every_byte(0x80);
  } else if constexpr (kType == DType::kQ4_1) {
    out.scale = half_at(in);
    out.minimum = half_at(in + 2);
    split_nibbles(in + 4, out);
  } else {
    static_assert(kType == DType::kQ4_0);
    out.scale = half_at(in);
    split_nibbles(in + 2, out);
  }
}

// ---- tiles

void put_half(std::byte* at, int lane, uint16_t bits) { std::memcpy(at + 2 * lane, &bits, 2); }

void put_lane(std::byte* vector, int lane, uint32_t bits) { std::memcpy(vector + 4 * lane, &bits, 4); }

uint32_t lane_at(const std::byte* vector, int lane) {
  uint32_t bits;
  std::memcpy(&bits, vector + 4 * lane, 4);
  return bits;
}

// Codes of four columns each, in the order of a lane's bytes: the middle two change places.
struct Chunks {
  uint32_t bits[kQuantChunks];
  explicit Chunks(const uint64_t (&code)[kWords]) {
    for (int i = 0; i < kWords; ++i) {
      const uint64_t in = code[i];
      const uint64_t ordered =
          (in & 0xff0000ffff0000ff) | (in & 0x0000ff000000ff00) << 8 | (in >> 8 & 0x0000ff000000ff00);
      bits[2 * i] = static_cast<uint32_t>(ordered);
      bits[2 * i + 1] = static_cast<uint32_t>(ordered >> 32);
    }
  }
};

// Fields of kBits bits of the lanes' bytes, those that lie `from` up in the codes; a vector has 8 / kBits chunks.
template <int kBits>
void put_field(std::byte* vectors, int lane, const Chunks& codes, int from) {
  constexpr auto kMask = static_cast<uint32_t>(every_byte((1u << kBits) - 1));
  constexpr int kChunks = 8 / kBits;  // of a vector
  for (int v = 0; v < kBits; ++v) {
    uint32_t bits = 0;
    for (int i = 0; i < kChunks; ++i) bits |= (codes.bits[v * kChunks + i] >> from & kMask) << kBits * i;
    put_lane(vectors + 64 * v, lane, bits);
  }
}

uint32_t field_at(const std::byte* vectors, int lane, int chunk, int bits) {
  const int chunks = 8 / bits;
  const auto mask = static_cast<uint32_t>(every_byte((1u << bits) - 1));
  return lane_at(vectors + 64 * (chunk / chunks), lane) >> bits * (chunk % chunks) & mask;
}

template <DType kType>
void put_scales(const FileBlock& in, int lane, std::byte* header, std::byte* block) {
  constexpr QuantFormat format = quant_format(kType);
  const auto byte = [&](int at, int value) { block[at + lane] = static_cast<std::byte>(value); };
  if (format.e8m0) {
    byte(0, in.scale);
    return;
  }
  std::byte* scales = format.super() ? header : block;
  put_half(scales, lane, in.scale);
  if (format.minimum) put_half(scales + 32, lane, in.minimum);
  if (format.factors == 1) {
    byte(0, in.factor[0]);
    byte(16, in.minimum_factor[0]);
  } else if (format.factors == 2) {
    for (int half = 0; half < 2; ++half) byte(16 * half, in.factor[half] | in.minimum_factor[half] << 4);
  }
}

float scale_at(const QuantFormat& format, const std::byte* scales, int lane) {
  if (format.e8m0) {  // 2^(e - 128): the codes are doubled. 255 is no scale; here it is infinite.
    const uint32_t bits = static_cast<uint32_t>(scales[lane]) << 23;
    return 0.5f * std::bit_cast<float>(std::max(bits, 0x400000u));  // the bits of 2^-127
  }
  uint16_t bits;
  std::memcpy(&bits, scales + 2 * lane, 2);
  return f16_to_f32(bits);
}

template <DType kType>
void pack_row(std::span<const std::byte> blocks, int64_t row, std::byte* tiles) {
  constexpr QuantFormat kFormat = quant_format(kType);
  constexpr BlockShape kShape = block_shape(kType);
  constexpr int kParts = kShape.elements / kQuantBlock;
  const int lane = static_cast<int>(row % kQuantRows);
  const int64_t count = static_cast<int64_t>(blocks.size()) / kShape.bytes * kParts;
  COPRIME_CHECK(static_cast<int64_t>(blocks.size()) == count / kParts * kShape.bytes, "{} bytes of {}", blocks.size(),
                dtype_name(kType));
  std::byte* tile = tiles + row / kQuantRows * quant_tile_bytes(kType, count);
  for (int64_t i = 0; i < count; ++i) {
    FileBlock in;
    split_block<kType>(bytes_of(blocks) + i / kParts * kShape.bytes, static_cast<int>(i % kParts), in);
    std::byte* block = tile + quant_block_at(kType, i);
    put_scales<kType>(in, lane, tile + quant_header_at(kType, i), block);
    const Chunks codes(in.code);
    put_field<kFormat.low_bits>(block + kFormat.low_at(), lane, codes, 0);
    if constexpr (kFormat.high_bits > 0) {
      put_field<kFormat.high_bits>(block + kFormat.high_at(), lane, codes, kFormat.low_bits);
    }
  }
}

template <size_t... kIndex>
void pack_row_of(DType type, std::span<const std::byte> blocks, int64_t row, std::byte* tiles,
                 std::index_sequence<kIndex...>) {
  const bool found =
      ((type == kQuantTypes[kIndex] && (pack_row<kQuantTypes[kIndex]>(blocks, row, tiles), true)) || ...);
  COPRIME_CHECK(found, "no quantised type: {}", dtype_name(type));
}

}  // namespace

void pack_quant_row(DType type, std::span<const std::byte> blocks, int64_t row, std::byte* tiles) {
  if (type == DType::kFp8) return pack_fp8_row(blocks, row, tiles);
  pack_row_of(type, blocks, row, tiles, std::make_index_sequence<std::size(kQuantTypes)>());
}

QuantBlock read_quant_block(DType type, const std::byte* tile, int lane, int64_t index) {
  const QuantFormat format = quant_format(type);
  const std::byte *block = tile + quant_block_at(type, index), *header = tile + quant_header_at(type, index);
  const std::byte* scales = format.super() ? header : block;
  const auto byte = [&](int at) { return static_cast<uint8_t>(block[at + lane]); };

  QuantBlock out = {};
  int factor[2] = {1, 1}, minimum_factor[2] = {-1, -1};  // minima of factors are subtracted
  if (!format.super()) minimum_factor[0] = minimum_factor[1] = 1;
  if (format.factors == 2) {
    for (int half = 0; half < 2; ++half) {
      factor[half] = format.minimum ? byte(16 * half) & 15 : static_cast<int8_t>(byte(16 * half));
      minimum_factor[half] *= byte(16 * half) >> 4;
    }
  }
  out.scale = scale_at(format, scales, lane);
  if (format.factors == 1) {
    out.scale *= static_cast<float>(byte(0));
    minimum_factor[0] = minimum_factor[1] = -byte(16);
  }
  if (format.minimum) {
    const float minimum = scale_at({}, scales + 32, lane);
    for (int half = 0; half < 2; ++half) out.minimum[half] = minimum * static_cast<float>(minimum_factor[half]) + 0.0f;
  }
  for (int chunk = 0; chunk < kQuantChunks; ++chunk) {
    uint32_t codes = field_at(block + format.low_at(), lane, chunk, format.low_bits);
    if (format.high_bits > 0)
      codes |= field_at(block + format.high_at(), lane, chunk, format.high_bits) << format.low_bits;
    for (int p = 0; p < 4; ++p) {
      const int stored = codes >> 8 * p & 255, k = 4 * chunk + kColumnOfByte[p];
      const int code = format.codebook ? kE2m1Codes[stored] : stored;
      out.value[k] = static_cast<int16_t>(factor[k / 16] * (code - format.offset));
    }
  }
  return out;
}

void read_quant_row(DType type, const std::byte* tiles, int64_t blocks, int64_t row, int64_t first, int64_t count,
                    float* out) {
  if (type == DType::kFp8) return read_fp8_row(tiles, blocks * kQuantBlock / kFp8Columns, row, first, count, out);
  const std::byte* tile = tiles + row / kQuantRows * quant_tile_bytes(type, blocks);
  const bool minimum = quant_format(type).minimum;
  for (int64_t k = first; k < first + count;) {
    const QuantBlock block = read_quant_block(type, tile, static_cast<int>(row % kQuantRows), k / kQuantBlock);
    for (const int64_t end = std::min(first + count, (k / kQuantBlock + 1) * kQuantBlock); k < end; ++k) {
      const auto i = static_cast<size_t>(k % kQuantBlock);
      const float product = block.scale * static_cast<float>(block.value[i]);
      *out++ = minimum ? product + block.minimum[i / 16] : product + 0.0f;
    }
  }
}

}  // namespace coprime
