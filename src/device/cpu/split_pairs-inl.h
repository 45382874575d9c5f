// OrderClass::kBfloatPairs (split_linear.h) over vectors whose lanes are output rows. Included inside the target's
// attributes and an unnamed namespace.
//
// `Vectors` has Sums (16 floats), Pairs (16 pairs of bf16) and
//   zero() -> Sums, load(const float*) -> Sums, store(Sums, float*), pairs(const std::byte*) -> Pairs: 64 bytes,
//   word(const std::byte*) -> Pairs: 4 bytes in every lane, dot(Sums, Pairs, Pairs) -> Sums.
//
// Registers hold R rows of x by T tiles. Many rows go in panels and columns in blocks, so that weights stay in the
// first cache while the rows pass; sums rest in y between blocks of columns, exactly.

constexpr int kMaxRows = 6;
constexpr int64_t kBlockPairs = 128;  // of columns; a multiple of kWordPairs
constexpr int64_t kPanelRows = 96;    // a multiple of kMaxRows
constexpr int64_t kWordPairs = 8;     // pairs of a part of the inputs, before those of the other part
constexpr int64_t kTileLanes = 16, kPairBytes = 64;

#undef COPRIME_UNROLL
#define COPRIME_UNROLL _Pragma("GCC unroll 16")

template <class Vectors, int kParts, int R, int T>
HWY_INLINE void multiply_block(const SplitWork& work, int64_t row, int64_t tile, int64_t begin, int64_t end) {
  const int64_t pairs = (work.x.columns + 1) / 2, stride = pairs * kPairBytes;
  alignas(64) float sums[R][T][kTileLanes] = {};
  const int64_t output = tile * kTileLanes, outputs = std::min<int64_t>(T * kTileLanes, work.rows - output);
  const auto bytes = static_cast<size_t>(outputs) * sizeof(float);
  if (begin > 0) {
    for (int r = 0; r < R; ++r) std::memcpy(sums[r][0], work.y.row(row + r) + output, bytes);
  }
  typename Vectors::Sums sum[R][T];
  const std::byte* x[R];
  COPRIME_UNROLL for (int r = 0; r < R; ++r) {
    x[r] = work.x.data + (row + r) * work.x.row_bytes() + begin * kParts * 4;
    COPRIME_UNROLL for (int t = 0; t < T; ++t) sum[r][t] = Vectors::load(sums[r][t]);
  }
  const std::byte* w = work.weight + tile * stride + begin * kPairBytes;
  for (int64_t k = begin; k < end; k += kWordPairs) {
    const int64_t count = std::min(kWordPairs, end - k);
    for (int64_t i = 0; i < count; ++i, w += kPairBytes) {
      typename Vectors::Pairs weights[T];
      COPRIME_UNROLL for (int t = 0; t < T; ++t) {
        weights[t] = Vectors::pairs(w + t * stride);
        if constexpr (R == 1) __builtin_prefetch(w + t * stride + 1024);
      }
      COPRIME_UNROLL for (int p = 0; p < kParts; ++p) {
        COPRIME_UNROLL for (int r = 0; r < R; ++r) {
          const auto word = Vectors::word(x[r] + (p * kWordPairs + i) * 4);
          COPRIME_UNROLL for (int t = 0; t < T; ++t) sum[r][t] = Vectors::dot(sum[r][t], weights[t], word);
        }
      }
    }
    COPRIME_UNROLL for (int r = 0; r < R; ++r) x[r] += kParts * kWordPairs * 4;
  }
  COPRIME_UNROLL for (int r = 0; r < R; ++r) {
    COPRIME_UNROLL for (int t = 0; t < T; ++t) Vectors::store(sum[r][t], sums[r][t]);
  }
  for (int r = 0; r < R; ++r) {
    float* y = work.y.row(row + r) + output;
    if (end == pairs && work.bias != nullptr) {
      for (int64_t i = 0; i < outputs; ++i) y[i] = sums[r][0][i] + work.bias[output + i];
    } else {
      std::memcpy(y, sums[r][0], bytes);
    }
  }
}

// Tiles [tile, last) for R rows, pairs [begin, end) of columns.
template <class Vectors, int kParts, int R>
HWY_NOINLINE void multiply_rows(const SplitWork& work, int64_t row, int64_t tile, int64_t last, int64_t begin,
                                int64_t end) {
  if constexpr (R == 1) {
    for (; tile + 8 <= last; tile += 8) multiply_block<Vectors, kParts, R, 8>(work, row, tile, begin, end);
  }
  for (; tile + 4 <= last; tile += 4) multiply_block<Vectors, kParts, R, 4>(work, row, tile, begin, end);
  for (; tile < last; ++tile) multiply_block<Vectors, kParts, R, 1>(work, row, tile, begin, end);
}

template <class Vectors, int kParts>
void multiply_pairs(const SplitWork& work) {
  using RowsFn = void (*)(const SplitWork&, int64_t, int64_t, int64_t, int64_t, int64_t);
  constexpr RowsFn kRows[] = {multiply_rows<Vectors, kParts, 1>, multiply_rows<Vectors, kParts, 2>,
                              multiply_rows<Vectors, kParts, 3>, multiply_rows<Vectors, kParts, 4>,
                              multiply_rows<Vectors, kParts, 5>, multiply_rows<Vectors, kParts, 6>};
  const int64_t rows = work.x.rows, pairs = (work.x.columns + 1) / 2;
  if (rows <= kMaxRows) {  // weights pass once, whole
    if (rows > 0) kRows[rows - 1](work, 0, work.first_tile, work.last_tile, 0, pairs);
    return;
  }
  constexpr int64_t kTiles = 4;
  for (int64_t panel = 0; panel < rows; panel += kPanelRows) {
    const int64_t panel_rows = std::min(kPanelRows, rows - panel);
    const int64_t groups = (panel_rows + kMaxRows - 1) / kMaxRows;
    int64_t begin = 0;
    do {
      const int64_t end = std::min(begin + kBlockPairs, pairs);
      for (int64_t tile = work.first_tile; tile < work.last_tile; tile += kTiles) {
        const int64_t last = std::min(tile + kTiles, work.last_tile);
        for (int64_t group = 0; group < groups; ++group) {  // of nearly equal sizes
          const int64_t row = panel + panel_rows * group / groups;
          kRows[panel + panel_rows * (group + 1) / groups - row - 1](work, row, tile, last, begin, end);
        }
      }
      begin = end;
    } while (begin < pairs);
  }
}

template <class Vectors>
void multiply(const SplitWork& work) {
  work.x.parts == 2 ? multiply_pairs<Vectors, 2>(work) : multiply_pairs<Vectors, 1>(work);
}
