// Many rows of x over tiles: AmxTiles, or those of the tests. Included after quant-inl.h, whose panels of codes are
// tiles of weights: a block of 32 columns is eight rows of a tile. Sums of a block are integers, so that the bits are
// those of every other kernel.
//
// Tiles 0 to 3 are sums, of each part of x by each 16 outputs; 4 and 5 the parts of 16 rows of x; 6 and 7 weights. The
// sums of a block are added in floats while the tiles multiply the next one.

constexpr int kTileRowsOfX = 16;
constexpr int64_t kTilePanelRows = 128;  // of x, whose part of these columns stays in the second cache
constexpr int kPanelOutputs = kPanelRows / 16;

// Integer sums of a block: of each part by each tile of outputs.
template <int kParts>
struct TileSums {
  alignas(64) int32_t sum[kParts][kPanelOutputs][kTileRowsOfX][16];
};

// A block of the panel times `rows` rows of x: `integers` are the first one's first part.
template <class Tiles, int kParts>
HWY_INLINE void multiply_block(Tiles& tiles, const std::byte* words, const std::byte* integers, int64_t stride,
                               TileSums<kParts>& out) {
  for_constants<0, kParts * kPanelOutputs>([&](auto i) COPRIME_INLINE_LAMBDA { tiles.template zero<i>(); });
  for_constants<0, kParts>([&](auto p)
                               COPRIME_INLINE_LAMBDA { tiles.template load<4 + p>(integers + 32 * p, stride); });
  for_constants<0, kPanelOutputs>([&](auto t) COPRIME_INLINE_LAMBDA {
    tiles.template load<6 + t>(words + 64 * t, 2 * kVectorBytes);
    for_constants<0, kParts>(
        [&](auto p) COPRIME_INLINE_LAMBDA { tiles.template dot_bytes<p * kPanelOutputs + t, 4 + p, 6 + t>(); });
  });
  for_constants<0, kPanelOutputs>([&](auto t) COPRIME_INLINE_LAMBDA {
    for_constants<0, kParts>(
        [&](auto p) COPRIME_INLINE_LAMBDA { tiles.template store<p * kPanelOutputs + t>(out.sum[p][t], 64); });
  });
}

// sums += a block's integers, scaled.
template <int kMinimaOfBlock, bool kOffset, int kParts>
HWY_INLINE void add_block_sums(const TileSums<kParts>& in, const Panel& panel, int64_t block, const std::byte* x,
                               int64_t stride, int rows, int offset, float (*sums)[kPanelRows]) {
  for (int r = 0; r < rows; ++r, x += stride) {
    const auto& head = *reinterpret_cast<const ActivationBlock*>(x);
    COPRIME_UNROLL for (int g = 0; g < 2; ++g) {
      const int tile = g * kLanes / 16, lane = g * kLanes % 16;
      Ints sum = load(in.sum[0][tile][r] + lane);
      if constexpr (kParts == 2) sum = add(times_128(sum), load(in.sum[kParts - 1][tile][r] + lane));
      if constexpr (kOffset) sum = subtract(sum, broadcast(offset * head.integer_sum));
      const Floats scale = multiply(load_floats(panel.scale[block] + kLanes * g), broadcast(head.scale));
      Floats y = fused(to_floats(sum), scale, load_floats(sums[r] + kLanes * g));
      if constexpr (kMinimaOfBlock == 1) {
        y = fused(load_floats(panel.minimum[block][0] + kLanes * g), broadcast(head.sum), y);
      }
      store_floats(y, sums[r] + kLanes * g);
    }
  }
}

// sums[r] += the panel's blocks times row r of x.
template <class Tiles, int kMinimaOfBlock, bool kOffset, int kParts>
HWY_NOINLINE void multiply_tile_group(Tiles& tiles, const Panel& panel, int64_t blocks, const std::byte* x,
                                      int64_t stride, int rows, int offset, float (*sums)[kPanelRows]) {
  constexpr int64_t kBlockBytes =
      activation_block_bytes(kParts == 2 ? ActivationForm::kTwoBytes : ActivationForm::kOneByte);
  TileSums<kParts> products[2];
  for (int64_t b = 0; b <= blocks; ++b) {
    if (b < blocks) {
      multiply_block<Tiles, kParts>(tiles, panel.words(b, 8), x + b * kBlockBytes + sizeof(ActivationBlock), stride,
                                    products[b % 2]);
    }
    if (b > 0) {
      add_block_sums<kMinimaOfBlock, kOffset, kParts>(products[(b - 1) % 2], panel, b - 1, x + (b - 1) * kBlockBytes,
                                                      stride, rows, offset, sums);
    }
  }
}

inline TileShapes shapes_for(int rows) {
  TileShapes shapes;
  for (int i = 0; i < 4; ++i) shapes.tile[i] = {rows, 64};
  for (int i = 4; i < 6; ++i) shapes.tile[i] = {rows, 32};
  for (int i = 6; i < 8; ++i) shapes.tile[i] = {kQuantChunks, 64};
  return shapes;
}

// A panel for rows [row, row + count) of x, blocks from `first` on; y holds the sums so far.
template <class Tiles, DType kType, int kParts>
HWY_INLINE void multiply_tile_panel(Tiles& tiles, const QuantWork& work, const Panel& panel, int64_t tile,
                                    int64_t first, int64_t blocks, int64_t row, int64_t count) {
  constexpr QuantFormat kFormat = quant_format(kType);
  const int64_t output = tile * kQuantRows;
  const int64_t outputs = std::min<int64_t>(kPanelRows, std::min(work.rows, work.last_tile * kQuantRows) - output);
  const auto bytes = static_cast<size_t>(outputs) * sizeof(float);
  const bool last = first + blocks == work.x.blocks;
  const int64_t at = first * activation_block_bytes(work.x.form);
  for (int64_t begin = row; begin < row + count; begin += kTileRowsOfX) {
    const int size = static_cast<int>(std::min<int64_t>(kTileRowsOfX, row + count - begin));
    if (size < kTileRowsOfX) tiles.configure(shapes_for(size));
    alignas(64) float sums[kTileRowsOfX][kPanelRows] = {};
    for (int r = 0; r < size && first > 0; ++r) std::memcpy(sums[r], work.y.row(begin + r) + output, bytes);
    multiply_tile_group<Tiles, kMinima<kType>, kFormat.offset != 0, kParts>(
        tiles, panel, blocks, work.x.row(begin) + at, work.x.row_bytes(), size, kFormat.offset, sums);
    for (int r = 0; r < size; ++r) {
      if (last && work.bias != nullptr) {
        for (int64_t i = 0; i < outputs; ++i) sums[r][i] += work.bias[output + i];
      }
      std::memcpy(work.y.row(begin + r) + output, sums[r], bytes);
    }
    if (size < kTileRowsOfX) tiles.configure(shapes_for(kTileRowsOfX));
  }
}

template <class Tiles, DType kType, int kParts>
HWY_NOINLINE void multiply_tiles(const QuantWork& work) {
  static_assert(quant_format(kType).factors < 2);  // else a block has two sums, of half a tile each
  const int64_t tile_bytes = quant_tile_bytes(kType, work.x.blocks);
  constexpr int64_t kShared = quant_format(kType).super() ? kSuperBlocks : 1;
  constexpr int64_t kPartUnits = kCodesBlocks / kShared;
  const int64_t units = work.x.blocks / kShared, parts = (units + kPartUnits - 1) / kPartUnits;
  Tiles tiles;
  tiles.configure(shapes_for(kTileRowsOfX));
  Panel panel;
  for (int64_t row = 0; row < work.x.rows; row += kTilePanelRows) {
    const int64_t rows = std::min(kTilePanelRows, work.x.rows - row);
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t first = units * part / parts * kShared, blocks = units * (part + 1) / parts * kShared - first;
      for (int64_t tile = work.first_tile; tile < work.last_tile; tile += kPanelTiles) {
        for (int t = 0; t < kPanelTiles; ++t) {  // a last tile alone is there twice; its second sums go nowhere
          const std::byte* from = work.weight + std::min(tile + t, work.last_tile - 1) * tile_bytes;
          unpack<kType, true>(from, first, blocks, kVectors * t, panel);
        }
        multiply_tile_panel<Tiles, kType, kParts>(tiles, work, panel, tile, first, blocks, row, rows);
      }
    }
  }
  tiles.release();
}

template <class Tiles, DType kType>
void multiply_many(const QuantWork& work) {
  if (work.x.blocks == 0) return multiply_nothing(work);
  work.x.form == ActivationForm::kTwoBytes ? multiply_tiles<Tiles, kType, 2>(work)
                                           : multiply_tiles<Tiles, kType, 1>(work);
}
