// The kernels, over the vectors of vectors256-inl.h or vectors512-inl.h, whose lanes are output rows. Included after
// those, inside the target's attributes and an unnamed namespace. What they compute, and in which order, is stated in
// quant_kernels.h.
//
// One row of x: weights go from memory to registers, codes meet the two bytes of an activation. Where the set has no
// product of 8-bit codes that keeps 32 bits (AVX2), these meet halves of 16 bits instead.
//
// Many rows: a panel of 2 vectors of weight rows by up to 512 columns is unpacked once, to 16-bit values or (kFast) to
// codes of a byte, and stays in the first cache while groups of rows of x pass. Sums rest in y between such columns.

#undef COPRIME_UNROLL
#define COPRIME_UNROLL _Pragma("GCC unroll 16")
#define COPRIME_INLINE_LAMBDA __attribute__((always_inline))

constexpr int kVectors = kQuantRows / kLanes;  // of a tile
constexpr int kVectorBytes = 4 * kLanes;
constexpr int64_t kPrefetchBytes = 2048;

// ---- blocks of weights

// Codes of chunk kChunk, a byte each, of the rows of vector v.
template <DType kType, int kChunk>
HWY_INLINE Ints chunk_codes(const std::byte* block, int v) {
  constexpr QuantFormat kFormat = quant_format(kType);
  constexpr int kLow = kFormat.low_bits, kHigh = kFormat.high_bits;
  constexpr int kLowChunks = 8 / kLow;  // of a vector
  Ints codes = load(block + kFormat.low_at() + 64 * (kChunk / kLowChunks) + kVectorBytes * v);
  if constexpr (kLow < 8) {
    codes = bits_and(shift_down<kLow*(kChunk % kLowChunks)>(codes), broadcast_bytes((1 << kLow) - 1));
  }
  if constexpr (kHigh > 0) {
    constexpr int kHighChunks = 8 / kHigh;
    const Ints high = load(block + kFormat.high_at() + 64 * (kChunk / kHighChunks) + kVectorBytes * v);
    constexpr int kMask = ((1 << kHigh) - 1) << kLow;
    codes = bits_or(codes, bits_and(shift_down<kHigh*(kChunk % kHighChunks) - kLow>(high), broadcast_bytes(kMask)));
  }
  if constexpr (kFormat.codebook) codes = lookup(kE2m1Codes, codes);
  return codes;
}

// fn(constant) for each of [kFirst, kFirst + kCount).
template <int kFirst, int kCount, class Fn>
HWY_INLINE void for_constants(const Fn& fn) {
  if constexpr (kCount > 0) {
    fn(std::integral_constant<int, kFirst>());
    for_constants<kFirst + 1, kCount - 1>(fn);
  }
}

// Scales and minima of f16 or e8m0, of a block or of the header of several.
struct Scales {
  Floats scale[kVectors], minimum[kVectors];
};

template <DType kType>
HWY_INLINE Scales load_scales(const std::byte* at) {
  constexpr QuantFormat kFormat = quant_format(kType);
  Scales out;
  COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) {
    out.scale[v] = kFormat.e8m0 ? load_e8m0(at + kLanes * v) : load_f16(at + 2 * kLanes * v);
    if constexpr (kFormat.minimum) out.minimum[v] = load_f16(at + 32 + 2 * kLanes * v);
  }
  return out;
}

// Factor `which` of a block, as integers.
template <DType kType>
HWY_INLINE Ints factor_at(const std::byte* block, int which, int v) {
  constexpr QuantFormat kFormat = quant_format(kType);
  const std::byte* at = block + 16 * which + kLanes * v;
  if constexpr (kFormat.factors == 1) return load_unsigned(at);
  if constexpr (kFormat.minimum) return bits_and(load_unsigned(at), broadcast(15));
  return load_signed(at);
}

// The factor of minimum `which`.
template <DType kType>
HWY_INLINE Floats minimum_factor_at(const std::byte* block, int which, int v) {
  if constexpr (quant_format(kType).factors == 1) return to_floats(load_unsigned(block + 16 + kLanes * v));
  return to_floats(shift_down<4>(load_unsigned(block + 16 * which + kLanes * v)));
}

// The scale of 32 values.
template <DType kType>
HWY_INLINE Floats block_scale(const Scales& scales, const std::byte* block, int v) {
  if constexpr (quant_format(kType).factors != 1) return scales.scale[v];
  return multiply(scales.scale[v], to_floats(factor_at<kType>(block, 0, v)));
}

// ---- one row of x

// The sum of products of codes with activations of 16 bits.
class HalvesDot {
 public:
  HalvesDot() : sum_(zero_ints()) {}
  void add_chunk(int, Ints codes, const std::byte* words) {
    sum_ = add_pairs(sum_, bits_and(codes, broadcast(0x00ff00ff)), word(words));
    sum_ = add_pairs(sum_, shift_down<8>(codes), word(words + 4));
  }
  Ints total() const { return sum_; }

 private:
  Ints sum_;
};

// y = fma(..., y) of one block.
template <DType kType, ActivationForm kForm>
HWY_INLINE void add_block(const Scales& scales, const std::byte* block, const ActivationBlock& x,
                          Floats (&y)[kVectors]) {
  constexpr QuantFormat kFormat = quant_format(kType);
  constexpr bool kHalves = kForm == ActivationForm::kHalves;
  constexpr int kSums = kFormat.factors == 2 ? 2 : 1, kChunks = kQuantChunks / kSums;
  using Dot = std::conditional_t<
      kHalves, HalvesDot,
      ByteDot<kHalves ? 1 : kFormat.max_code(), kChunks, kForm == ActivationForm::kTwoBytes ? 2 : 1>>;
  const std::byte* words = x.integers();
  Ints sum[kVectors];
  for_constants<0, kSums>([&](auto which) COPRIME_INLINE_LAMBDA {
    Dot dot[kVectors];
    for_constants<0, kChunks>([&](auto step) COPRIME_INLINE_LAMBDA {
      constexpr int kChunk = which * kChunks + step;
      COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) {
        dot[v].add_chunk(step, chunk_codes<kType, kChunk>(block, v), words + (kHalves ? 8 : 4) * kChunk);
      }
    });
    const int32_t codes_of_zero = kFormat.offset * (kSums == 2 ? x.integer_half_sum[which] : x.integer_sum);
    COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) {
      Ints part = dot[v].total();
      if constexpr (kFormat.offset != 0) part = subtract(part, broadcast(codes_of_zero));
      if constexpr (kSums == 2) part = multiply(part, factor_at<kType>(block, which, v));
      sum[v] = which == 0 ? part : add(sum[v], part);
    }
  });
  COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) {
    y[v] = fused(to_floats(sum[v]), multiply(block_scale<kType>(scales, block, v), broadcast(x.scale)), y[v]);
    if constexpr (kFormat.minimum && kFormat.factors == 0) y[v] = fused(scales.minimum[v], broadcast(x.sum), y[v]);
    if constexpr (kFormat.minimum && kFormat.factors == 1) {
      y[v] = fused_negative(multiply(scales.minimum[v], minimum_factor_at<kType>(block, 0, v)), broadcast(x.sum), y[v]);
    }
    if constexpr (kFormat.minimum && kFormat.factors == 2) {
      COPRIME_UNROLL for (int half = 0; half < 2; ++half) {
        const Floats minimum = multiply(scales.minimum[v], minimum_factor_at<kType>(block, half, v));
        y[v] = fused_negative(minimum, broadcast(x.half_sum[half]), y[v]);
      }
    }
  }
}

template <DType kType, ActivationForm kForm>
HWY_NOINLINE void multiply_row(const QuantWork& work, int64_t row) {
  constexpr QuantFormat kFormat = quant_format(kType);
  constexpr int64_t kShared = kFormat.super() ? kSuperBlocks : 1;  // blocks that share scales
  constexpr int kLines = (kFormat.block_bytes() + 63) / 64;
  const int64_t tile_bytes = quant_tile_bytes(kType, work.x.blocks);
  const std::byte* at = work.weight + work.first_tile * tile_bytes;
  for (int64_t tile = work.first_tile; tile < work.last_tile; ++tile) {
    Floats y[kVectors];
    COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) y[v] = broadcast(0.0f);
    const std::byte* x = work.x.row(row);
    for (int64_t b = 0; b < work.x.blocks; b += kShared) {
      const Scales scales = load_scales<kType>(at);
      at += kFormat.header_bytes();
      for (int64_t i = 0; i < kShared; ++i) {
        COPRIME_UNROLL for (int line = 0; line < kLines; ++line) __builtin_prefetch(at + kPrefetchBytes + 64 * line);
        add_block<kType, kForm>(scales, at, *reinterpret_cast<const ActivationBlock*>(x), y);
        at += kFormat.block_bytes();
        x += activation_block_bytes(kForm);
      }
    }
    alignas(64) float sums[kQuantRows];
    COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) store_floats(y[v], sums + kLanes * v);
    const int64_t output = tile * kQuantRows, count = std::min<int64_t>(kQuantRows, work.rows - output);
    float* out = work.y.row(row) + output;
    if (work.bias == nullptr) {
      std::memcpy(out, sums, static_cast<size_t>(count) * sizeof(float));
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = sums[i] + work.bias[output + i];
    }
  }
}

// ---- many rows

constexpr int kPanelRows = 2 * kLanes;  // of the weight
constexpr int kPanelTiles = kPanelRows / kQuantRows;
constexpr int64_t kValuesBlocks = 20;            // of values in a panel: it stays in the first cache
constexpr int64_t kCodesBlocks = 32;             // of codes
constexpr int64_t kInputRows = 128;              // of x, whose part of these columns stays in the second cache
constexpr int kGroupRows = kLanes == 8 ? 6 : 8;  // of x at a time: their sums fill the registers

// Weights unpacked: for each block its values, [16 words of two columns, or 8 of four][2 vectors], and its scales.
struct Panel {
  alignas(64) std::byte values[kValuesBlocks * 16 * 2 * kVectorBytes];
  alignas(64) float scale[kCodesBlocks][kPanelRows];
  alignas(64) float minimum[kCodesBlocks][2][kPanelRows];

  std::byte* words(int64_t block, int count) { return values + block * count * 2 * kVectorBytes; }
  const std::byte* words(int64_t block, int count) const { return values + block * count * 2 * kVectorBytes; }
};

// Scales and minima of one vector of rows of a block to its place in the panel.
template <DType kType>
HWY_INLINE void unpack_scales(const Scales& scales, const std::byte* block, int v, int64_t to, int lane, Panel& panel) {
  constexpr QuantFormat kFormat = quant_format(kType);
  store_floats(block_scale<kType>(scales, block, v), panel.scale[to] + lane);
  if constexpr (kFormat.minimum) {
    COPRIME_UNROLL for (int half = 0; half < (kFormat.factors == 2 ? 2 : 1); ++half) {
      Floats minimum = scales.minimum[v];
      if constexpr (kFormat.factors > 0) {
        minimum = fused_negative(minimum, minimum_factor_at<kType>(block, half, v), broadcast(0.0f));
      }
      store_floats(minimum, panel.minimum[to][half] + lane);
    }
  }
}

// Values of one vector of rows of a block: 16 words of two columns each.
template <DType kType>
HWY_INLINE void unpack_values(const std::byte* block, int v, std::byte* words, int place) {
  constexpr QuantFormat kFormat = quant_format(kType);
  for_constants<0, kQuantChunks>([&](auto chunk) COPRIME_INLINE_LAMBDA {
    const Ints codes = chunk_codes<kType, chunk>(block, v);
    Ints pair[2] = {bits_and(codes, broadcast(0x00ff00ff)), shift_down<8>(codes)};
    COPRIME_UNROLL for (int p = 0; p < 2; ++p) {
      if constexpr (kFormat.offset != 0) pair[p] = subtract_halves(pair[p], broadcast(kFormat.offset * 0x10001));
      if constexpr (kFormat.factors == 2) {
        pair[p] = multiply_halves(pair[p], twice_in_halves(factor_at<kType>(block, chunk / 4, v)));
      }
      store(pair[p], words + (2 * (2 * chunk + p) + place) * kVectorBytes);
    }
  });
}

template <DType kType>
HWY_INLINE void unpack_codes(const std::byte* block, int v, std::byte* words, int place) {
  for_constants<0, kQuantChunks>([&](auto chunk) COPRIME_INLINE_LAMBDA {
    store(chunk_codes<kType, chunk>(block, v), words + (2 * chunk + place) * kVectorBytes);
  });
}

// Blocks [first, first + count) of a tile, whose first vector takes place `place` of the panel's two. `first` is a
// multiple of kSuperBlocks where the format has headers.
template <DType kType, bool kBytes>
HWY_NOINLINE void unpack(const std::byte* tile, int64_t first, int64_t count, int place, Panel& panel) {
  constexpr QuantFormat kFormat = quant_format(kType);
  Scales scales;
  const std::byte* at = tile + quant_header_at(kType, first);
  for (int64_t b = 0; b < count; ++b, at += kFormat.block_bytes()) {
    if (!kFormat.super() || b % kSuperBlocks == 0) {
      scales = load_scales<kType>(at);
      at += kFormat.header_bytes();
    }
    COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) {
      unpack_scales<kType>(scales, at, v, b, kLanes * (place + v), panel);
      if constexpr (kBytes) {
        unpack_codes<kType>(at, v, panel.words(b, 8), place + v);
      } else {
        unpack_values<kType>(at, v, panel.words(b, 16), place + v);
      }
    }
  }
}

// Dots of kRows rows of x with the panel's rows, in 16-bit values.
struct ValuesDot {
  static constexpr ActivationForm kForm = ActivationForm::kHalves;
  static constexpr int kWords = 16;  // of a block

  template <int kRows>
  static HWY_INLINE void dot(const std::byte* words, const std::byte* const* x, int, Ints (&sum)[kRows][2]) {
    COPRIME_UNROLL for (int r = 0; r < kRows; ++r) sum[r][0] = sum[r][1] = zero_ints();
    for_constants<0, kWords>([&](auto k) COPRIME_INLINE_LAMBDA {
      const Ints w0 = load(words + 2 * k * kVectorBytes), w1 = load(words + (2 * k + 1) * kVectorBytes);
      COPRIME_UNROLL for (int r = 0; r < kRows; ++r) {
        const Ints xs = word(x[r] + sizeof(ActivationBlock) + 4 * k);
        sum[r][0] = add_pairs(sum[r][0], w0, xs);
        sum[r][1] = add_pairs(sum[r][1], w1, xs);
      }
    });
  }
};

// The same in codes, of which `offset` is zero where it is not 0.
template <int kMaxCode, bool kOffset>
struct CodesDot {
  static constexpr ActivationForm kForm = ActivationForm::kOneByte;
  static constexpr int kWords = 8;

  template <int kRows>
  static HWY_INLINE void dot(const std::byte* words, const std::byte* const* x, [[maybe_unused]] int offset,
                             Ints (&sum)[kRows][2]) {
    ByteDot<kMaxCode, kWords, 1> dots[kRows][2];
    for_constants<0, kWords>([&](auto k) COPRIME_INLINE_LAMBDA {
      const Ints w0 = load(words + 2 * k * kVectorBytes), w1 = load(words + (2 * k + 1) * kVectorBytes);
      COPRIME_UNROLL for (int r = 0; r < kRows; ++r) {
        const std::byte* at = x[r] + sizeof(ActivationBlock) + 4 * k;
        dots[r][0].add_chunk(k, w0, at);
        dots[r][1].add_chunk(k, w1, at);
      }
    });
    COPRIME_UNROLL for (int r = 0; r < kRows; ++r) {
      COPRIME_UNROLL for (int g = 0; g < 2; ++g) sum[r][g] = dots[r][g].total();
      if constexpr (kOffset) {
        const Ints zeros = broadcast(offset * reinterpret_cast<const ActivationBlock*>(x[r])->integer_sum);
        COPRIME_UNROLL for (int g = 0; g < 2; ++g) sum[r][g] = subtract(sum[r][g], zeros);
      }
    }
  }
};

// What multiplies panels of a type: few such kernels serve all.
template <DType kType, bool kBytes>
using PanelDot = std::conditional_t<
    kBytes, CodesDot<kBytes ? (quant_format(kType).max_code() <= 15 ? 15 : 31) : 0, quant_format(kType).offset != 0>,
    ValuesDot>;
template <DType kType>
constexpr int kMinima = quant_format(kType).minimum ? (quant_format(kType).factors == 2 ? 2 : 1) : 0;

// sums[r] += the panel's blocks times row r of x, whose first block is at rows[r].
template <class Dot, int kMinimaOfBlock, int kRows>
HWY_NOINLINE void multiply_group(const Panel& panel, int64_t blocks, const std::byte* const* rows, int offset,
                                 float (*sums)[kPanelRows]) {
  const std::byte* x[kRows];
  COPRIME_UNROLL for (int r = 0; r < kRows; ++r) x[r] = rows[r];
  for (int64_t b = 0; b < blocks; ++b) {
    Ints sum[kRows][2];
    Dot::template dot<kRows>(panel.words(b, Dot::kWords), x, offset, sum);
    COPRIME_UNROLL for (int r = 0; r < kRows; ++r) {
      const auto& head = *reinterpret_cast<const ActivationBlock*>(x[r]);
      COPRIME_UNROLL for (int g = 0; g < 2; ++g) {
        const Floats scale = multiply(load_floats(panel.scale[b] + kLanes * g), broadcast(head.scale));
        Floats y = fused(to_floats(sum[r][g]), scale, load_floats(sums[r] + kLanes * g));
        if constexpr (kMinimaOfBlock == 1) {
          y = fused(load_floats(panel.minimum[b][0] + kLanes * g), broadcast(head.sum), y);
        }
        if constexpr (kMinimaOfBlock == 2) {
          y = fused(load_floats(panel.minimum[b][0] + kLanes * g), broadcast(head.half_sum[0]), y);
          y = fused(load_floats(panel.minimum[b][1] + kLanes * g), broadcast(head.half_sum[1]), y);
        }
        store_floats(y, sums[r] + kLanes * g);
      }
      x[r] += activation_block_bytes(Dot::kForm);
    }
    asm volatile("" ::: "memory");  // sums stay in memory, not in registers that then spill
  }
}

using GroupFn = void (*)(const Panel&, int64_t, const std::byte* const*, int, float (*)[kPanelRows]);

template <class Dot, int kMinimaOfBlock>
constexpr auto kGroups = []<int... kRows>(std::integer_sequence<int, kRows...>) {
  return std::array<GroupFn, sizeof...(kRows)>{multiply_group<Dot, kMinimaOfBlock, kRows + 1>...};
}
(std::make_integer_sequence<int, kGroupRows>());

// A panel for rows [row, row + count) of x, blocks from `first` on; y holds the sums so far.
template <DType kType, bool kBytes>
HWY_INLINE void multiply_panel(const QuantWork& work, const Panel& panel, int64_t tile, int64_t first, int64_t blocks,
                               int64_t row, int64_t count) {
  using Dot = PanelDot<kType, kBytes>;
  const int64_t stride = activation_block_bytes(Dot::kForm), output = tile * kQuantRows;
  const int64_t outputs = std::min<int64_t>(kPanelRows, std::min(work.rows, work.last_tile * kQuantRows) - output);
  const auto bytes = static_cast<size_t>(outputs) * sizeof(float);
  const bool last = first + blocks == work.x.blocks;
  const int64_t groups = (count + kGroupRows - 1) / kGroupRows;
  for (int64_t group = 0; group < groups; ++group) {  // of nearly equal sizes
    const int64_t begin = row + count * group / groups, size = row + count * (group + 1) / groups - begin;
    alignas(64) float sums[kGroupRows][kPanelRows] = {};
    const std::byte* x[kGroupRows];
    for (int64_t r = 0; r < size; ++r) {
      x[r] = work.x.row(begin + r) + first * stride;
      if (first > 0) std::memcpy(sums[r], work.y.row(begin + r) + output, bytes);
    }
    const auto& kernels = kGroups<Dot, kMinima<kType>>;
    kernels[static_cast<size_t>(size - 1)](panel, blocks, x, quant_format(kType).offset, sums);
    for (int64_t r = 0; r < size; ++r) {
      if (last && work.bias != nullptr) {
        for (int64_t i = 0; i < outputs; ++i) sums[r][i] += work.bias[output + i];
      }
      std::memcpy(work.y.row(begin + r) + output, sums[r], bytes);
    }
  }
}

template <DType kType, bool kBytes>
void multiply_rows(const QuantWork& work) {
  const int64_t tile_bytes = quant_tile_bytes(kType, work.x.blocks);
  // Columns go in parts of nearly equal sizes; a part begins where a header does.
  constexpr int64_t kShared = quant_format(kType).super() ? kSuperBlocks : 1;
  constexpr int64_t kPartUnits = (kBytes ? kCodesBlocks : kValuesBlocks) / kShared;
  const int64_t units = work.x.blocks / kShared, parts = (units + kPartUnits - 1) / kPartUnits;
  Panel panel;
  for (int64_t row = 0; row < work.x.rows; row += kInputRows) {
    const int64_t rows = std::min(kInputRows, work.x.rows - row);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = units * part / parts * kShared, blocks = units * (part + 1) / parts * kShared - first;
      for (int64_t tile = work.first_tile; tile < work.last_tile; tile += kPanelTiles) {
        for (int t = 0; t < kPanelTiles; ++t) {  // a last tile alone is there twice; its second sums go nowhere
          const std::byte* from = work.weight + std::min(tile + t, work.last_tile - 1) * tile_bytes;
          unpack<kType, kBytes>(from, first, blocks, kVectors * t, panel);
        }
        multiply_panel<kType, kBytes>(work, panel, tile, first, blocks, row, rows);
      }
    }
  }
}

// ---- what the table needs

// Codes of at most 5 bits meet bytes of activations in panels; others gain nothing from it on AVX2.
template <DType kType>
constexpr bool kBytePanel = quant_format(kType).factors < 2 && (kBytesOf8Bits || quant_format(kType).max_code() < 32);
template <DType kType>
constexpr bool kByteRow = kBytesOf8Bits || quant_format(kType).low_bits < 8;

template <DType kType>
ActivationForm form(MathMode math, int64_t rows) {
  const bool bytes = rows == 1 ? kByteRow<kType> : math == MathMode::kFast && kBytePanel<kType>;
  if (!bytes) return ActivationForm::kHalves;
  return math == MathMode::kFast ? ActivationForm::kOneByte : ActivationForm::kTwoBytes;
}

template <DType kType>
void multiply(const QuantWork& work) {
  if (work.x.rows == 0) return;
  if (work.x.blocks == 0) {
    for (int64_t row = 0; row < work.x.rows; ++row) {
      const int64_t last = std::min(work.rows, work.last_tile * kQuantRows);
      for (int64_t i = work.first_tile * kQuantRows; i < last; ++i) {
        work.y.row(row)[i] = work.bias == nullptr ? 0.0f : 0.0f + work.bias[i];
      }
    }
    return;
  }
  switch (work.x.form) {
    case ActivationForm::kTwoBytes:
      if constexpr (kByteRow<kType>) {
        for (int64_t row = 0; row < work.x.rows; ++row) multiply_row<kType, ActivationForm::kTwoBytes>(work, row);
      }
      return;
    case ActivationForm::kOneByte:
      if constexpr (kByteRow<kType>) {
        if (work.x.rows == 1) return multiply_row<kType, ActivationForm::kOneByte>(work, 0);
      }
      if constexpr (kBytePanel<kType>) multiply_rows<kType, true>(work);
      return;
    case ActivationForm::kHalves:
      if constexpr (!kByteRow<kType>) {
        if (work.x.rows == 1) return multiply_row<kType, ActivationForm::kHalves>(work, 0);
      }
      return multiply_rows<kType, false>(work);
  }
}

template <DType kType>
void widen(const WidenWork& work) {
  constexpr QuantFormat kFormat = quant_format(kType);
  Panel panel;
  const int64_t end = work.first + work.count;
  for (int64_t first = work.first / (kSuperBlocks * kQuantBlock) * kSuperBlocks; first * kQuantBlock < end;
       first += kSuperBlocks) {
    const int64_t blocks = std::min<int64_t>(kSuperBlocks, (end + kQuantBlock - 1) / kQuantBlock - first);
    unpack<kType, false>(work.tile, first, blocks, 0, panel);
    for (int64_t k = std::max(work.first, first * kQuantBlock); k < std::min(end, (first + blocks) * kQuantBlock);
         ++k) {
      const int64_t b = k / kQuantBlock - first, pair = k % kQuantBlock / 2;
      COPRIME_UNROLL for (int v = 0; v < kVectors; ++v) {
        const Ints values = load(panel.words(b, 16) + (2 * pair + v) * kVectorBytes);
        const Floats value = k % 2 == 0 ? low_half_to_floats(values) : high_half_to_floats(values);
        Floats sum = broadcast(0.0f);
        if constexpr (kFormat.minimum) {
          sum = load_floats(panel.minimum[b][kFormat.factors == 2 ? k % kQuantBlock / 16 : 0] + kLanes * v);
        }
        sum = add(multiply(value, load_floats(panel.scale[b] + kLanes * v)), sum);
        store_floats(sum, work.out + (k - work.first) * kQuantRows + kLanes * v);
      }
    }
  }
}

template <DType kType>
constexpr QuantFunctions kFunctions = {form<kType>, quantise_avx2, multiply<kType>, widen<kType>};
