// OrderClass::kBfloatTiles (split_linear.h) over tiles: AmxTiles, or those of the tests. Included inside an unnamed
// namespace.
//
// A tile of weights is 32 columns of 16 outputs, as they lie in memory. A tile of inputs has hi and lo of a group of
// rows one below the other, so that one product serves both, also for a single row. Sums of `kGroups` groups by
// `kOutputs` tiles fill four registers.

constexpr int64_t kBlockColumns = 512, kBlockTiles = kBlockColumns / kSplitColumns;
constexpr int64_t kTileBytes = 1024, kTileStride = 64;
constexpr int kTileLanes = 16;
constexpr int64_t kPanelGroups = 32;

// fn(constant) for each of [0, kCount).
template <int kCount, class Fn>
HWY_INLINE void for_constants(const Fn& fn) {
  [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) { (fn(std::integral_constant<int, kIndex>()), ...); }
  (std::make_integer_sequence<int, kCount>());
}

// One call's weights and inputs.
template <class Tiles>
class TileProduct {
 public:
  explicit TileProduct(const SplitWork& work)
      : work_(work),
        weight_stride_((work.x.columns + 1) / 2 * kTileStride),
        whole_(work.x.columns / kSplitColumns),
        blocks_(work.x.blocks()) {}

  void run() {
    const int64_t group_rows = work_.x.group_rows(), whole = work_.x.rows / group_rows;
    if (whole > 0) {
      configure(static_cast<int>(group_rows));
      if (whole == 1) {
        few();
      } else {
        many(whole);
      }
    }
    if (const int64_t left = work_.x.rows - whole * group_rows; left > 0) {
      configure(static_cast<int>(left));
      first_row_ = whole * group_rows;
      few();
    }
    tiles_.release();
  }

 private:
  static constexpr int kInputs = 4, kWeights = 6;  // tiles before them are sums

  void configure(int rows) {
    rows_ = rows;
    TileShapes shapes;
    for (int i = 0; i < 8; ++i) shapes.tile[i] = {i < kWeights ? rows * work_.x.parts : 16, 64};
    tiles_.configure(shapes);
  }

  // One group of rows: weights pass once, all columns of four tiles of outputs at a time.
  void few() {
    int64_t tile = work_.first_tile;
    for (; tile + 4 <= work_.last_tile; tile += 4) columns<1, 4>(tile);
    for (; tile < work_.last_tile; ++tile) columns<1, 1>(tile);
  }

  template <int kGroups, int kOutputs>
  void columns(int64_t tile) {
    int64_t begin = 0;
    do {
      block<kGroups, kOutputs>(0, tile, begin);
      begin += kBlockTiles;
    } while (begin < blocks_);
  }

  // Groups of rows, two at a time: a block of columns of two tiles of outputs stays in the first cache while they pass,
  // and their block of x in the second.
  void many(int64_t groups) {
    for (int64_t panel = 0; panel < groups; panel += kPanelGroups) {
      int64_t begin = 0;
      do {
        for (int64_t tile = work_.first_tile; tile < work_.last_tile; tile += 2) {
          panel_block(panel, std::min(groups, panel + kPanelGroups), tile, begin);
        }
        begin += kBlockTiles;
      } while (begin < blocks_);
    }
  }

  void panel_block(int64_t group, int64_t last, int64_t tile, int64_t begin) {
    const bool pair = tile + 2 <= work_.last_tile;
    for (; group + 2 <= last; group += 2) pair ? block<2, 2>(group, tile, begin) : block<2, 1>(group, tile, begin);
    if (group < last) pair ? block<1, 2>(group, tile, begin) : block<1, 1>(group, tile, begin);
  }

  // Tiles of columns [begin, begin + kBlockTiles), or to the end, added to y.
  template <int kGroups, int kOutputs>
  HWY_NOINLINE void block(int64_t group, int64_t tile, int64_t begin) {
    const int64_t end = std::min(begin + kBlockTiles, blocks_);
    const int64_t input_bytes = rows_ * work_.x.parts * kTileStride;  // of a tile
    const std::byte* x = work_.x.data + (first_row_ + group * rows_) * work_.x.row_bytes() + begin * input_bytes;
    const std::byte* w = work_.weight + tile * weight_stride_ + begin * kTileBytes;
    for_constants<kGroups * kOutputs>([&](auto i) { tiles_.template zero<i>(); });
    for (int64_t b = begin; b < end; ++b, x += input_bytes, w += kTileBytes) {
      alignas(64) std::byte filled[kOutputs][kTileBytes];
      if (b == whole_) fill_last(w, kOutputs, filled[0]);
      for_constants<kGroups>(
          [&](auto g) { tiles_.template load<kInputs + g>(x + g * rows_ * work_.x.row_bytes(), kTileStride); });
      for_constants<kOutputs>([&](auto t) {
        constexpr int kWeight = kWeights + t % 2;
        const std::byte* from = b == whole_ ? filled[t] : w + t * weight_stride_;
        if constexpr (kGroups == 1) prefetch(from);
        tiles_.template load<kWeight>(from, kTileStride);
        for_constants<kGroups>([&](auto g) { tiles_.template dot_bf16<g * kOutputs + t, kInputs + g, kWeight>(); });
      });
    }
    alignas(64) float sums[kGroups * kOutputs][16][kTileLanes];
    for_constants<kGroups * kOutputs>([&](auto i) { tiles_.template store<i>(sums[i], kTileStride); });
    for (int g = 0; g < kGroups; ++g) {
      for (int t = 0; t < kOutputs; ++t) {
        add_sums(sums[g * kOutputs + t], first_row_ + (group + g) * rows_, (tile + t) * kTileLanes, begin == 0,
                 end == blocks_);
      }
    }
  }

  // Weights come in one ascending stream a tile of outputs.
  static void prefetch(const std::byte* from) {
    for (int64_t at = 0; at < kTileBytes; at += 64) __builtin_prefetch(from + 2 * kTileBytes + at);
  }

  // The last tile of columns, where they are no multiple of 32, followed by zeros.
  HWY_NOINLINE void fill_last(const std::byte* w, int outputs, std::byte* filled) const {
    const int64_t bytes = weight_stride_ - whole_ * kTileBytes;
    for (int t = 0; t < outputs; ++t) {
      std::memset(filled + t * kTileBytes, 0, kTileBytes);
      std::memcpy(filled + t * kTileBytes, w + t * weight_stride_, static_cast<size_t>(bytes));
    }
  }

  // y = y + (hi + lo) of a group's rows.
  void add_sums(const float (*sums)[kTileLanes], int64_t row, int64_t output, bool first, bool last) const {
    const int64_t outputs = work_.rows - output;
    const float* bias = last && work_.bias != nullptr ? work_.bias + output : nullptr;
    const int low = work_.x.parts == 2 ? rows_ : 0;  // where the second part's sums begin
    for (int r = 0; r < rows_; ++r) {
      float* y = work_.y.row(row + r) + output;
      if (outputs >= kTileLanes) {
        add_row(sums[r], low == 0 ? nullptr : sums[r + low], bias, first, y);
      } else {  // the last tile's rows beyond the weight's
        const auto bytes = static_cast<size_t>(outputs) * sizeof(float);
        float held[kTileLanes] = {}, held_bias[kTileLanes] = {};
        if (!first) std::memcpy(held, y, bytes);
        if (bias != nullptr) std::memcpy(held_bias, bias, bytes);
        add_row(sums[r], low == 0 ? nullptr : sums[r + low], bias == nullptr ? nullptr : held_bias, first, held);
        std::memcpy(y, held, bytes);
      }
    }
  }

  typedef float Lanes16 __attribute__((vector_size(64)));
  static HWY_INLINE void add(Lanes16& sum, const float* values) {
    Lanes16 loaded;
    std::memcpy(&loaded, values, sizeof loaded);
    sum += loaded;
  }
  static HWY_INLINE void add_row(const float* high, const float* low, const float* bias, bool first, float* y) {
    Lanes16 sum;
    std::memcpy(&sum, high, sizeof sum);
    if (low != nullptr) add(sum, low);
    if (!first) add(sum, y);
    if (bias != nullptr) add(sum, bias);
    std::memcpy(y, &sum, sizeof sum);
  }

  const SplitWork& work_;
  const int64_t weight_stride_, whole_, blocks_;  // bytes of a tile of outputs; tiles of columns: whole ones, all
  int64_t first_row_ = 0;
  int rows_ = 0;  // of a group
  Tiles tiles_;
};

template <class Tiles>
void multiply(const SplitWork& work) {
  TileProduct<Tiles>(work).run();
}
