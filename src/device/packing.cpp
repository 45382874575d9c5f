#include "device/packing.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/number_formats.h"
#include "device/quant/quant_layout.h"
#include "tensor/block_formats.h"

namespace coprime {
namespace {

template <class T>
T read_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float element_to_float(DType type, const std::byte* data, int64_t index) {
  switch (type) {
    case DType::kF32:
      return read_as<float>(data + 4 * index);
    case DType::kF16:
      return f16_to_f32(read_as<uint16_t>(data + 2 * index));
    case DType::kBF16:
      return bf16_to_f32(read_as<uint16_t>(data + 2 * index));
    default:
      break;
  }
  COPRIME_CHECK(false, "no float type: {}", dtype_name(type));
  return 0;
}

Layout layout_of(DType type) {
  return is_block(type) ? Layout::kQuantTiles : type == DType::kBF16 ? Layout::kTile16Pairs : Layout::kTile16;
}

// Index of an element in the layouts of tiles.
int64_t tile_index(Layout layout, int64_t columns, int64_t row, int64_t column) {
  const int64_t tile = row / kTileRows, lane = row % kTileRows;
  if (layout == Layout::kTile16) return (tile * columns + column) * kTileRows + lane;
  const int64_t pairs = (columns + 1) / 2;
  return ((tile * pairs + column / 2) * kTileRows + lane) * 2 + column % 2;
}

class PackingSink final : public WeightSink {
 public:
  PackingSink(Weight& weight, DType type, WeightUse use, float offset, BufferArena& arena)
      : num_rows_(weight.rows), columns_(weight.columns), type_(type), use_(use), offset_(offset) {
    if (!is_float(type) && !is_block(type)) {
      fail(ErrorKind::kModel, "{}: elements of type {}; F32, F16, BF16 and GGUF's blocks are supported", weight.name,
           dtype_name(type));
    }
    COPRIME_CHECK(num_rows_ >= 0 && columns_ >= 0 && columns_ % block_shape(type).elements == 0, "{}: {} x {} of {}",
                  weight.name, num_rows_, columns_, dtype_name(type));
    Component component;
    component.role = ComponentRole::kValues;
    if (use == WeightUse::kVector) {
      component.type = DType::kF32;
      component.layout = Layout::kRowMajor;
      component.bytes = arena.take(static_cast<size_t>(num_rows_ * columns_) * sizeof(float));
    } else {
      COPRIME_CHECK(offset == 0, "{}: an offset of {} on a matrix", weight.name, offset);
      component.type = type;
      component.layout = layout_of(type);
      component.bytes = arena.take(static_cast<size_t>(tiles_of(num_rows_) * tile_bytes(type, columns_)));
    }
    layout_ = component.layout;
    data_ = component.bytes.data();
    weight.components.push_back(std::move(component));
  }

  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    COPRIME_CHECK(first == next_row_ && count >= 0 && first + count <= num_rows_, "rows {}+{} after {} of {}", first,
                  count, next_row_, num_rows_);
    const BlockShape block = block_shape(type_);
    const int64_t row_bytes = columns_ / block.elements * block.bytes;
    COPRIME_CHECK(static_cast<int64_t>(bytes.size()) == count * row_bytes, "{} bytes for {} rows of {}", bytes.size(),
                  count, row_bytes);
    next_row_ = first + count;
    if (use_ == WeightUse::kVector) {
      auto* out = reinterpret_cast<float*>(data_) + first * columns_;
      dequantize(type_, bytes.data(), count * columns_ / block_shape(type_).elements, out);
      for (int64_t i = 0; i < count * columns_; ++i) out[i] += offset_;
      return;
    }
    if (layout_ == Layout::kQuantTiles) {
      for (int64_t r = 0; r < count; ++r) {
        pack_quant_row(type_, bytes.subspan(static_cast<size_t>(r * row_bytes), static_cast<size_t>(row_bytes)),
                       first + r, data_);
      }
      return;
    }
    for (int64_t done = 0; done < count;) {  // one tile's rows at a time
      const int64_t row = first + done, in_tile = std::min(count - done, kTileRows - row % kTileRows);
      const std::byte* from = bytes.data() + done * row_bytes;
      if (type_ == DType::kF32) {
        pack_rows<uint32_t, 1>(row, in_tile, from);
      } else if (type_ == DType::kF16) {
        pack_rows<uint16_t, 1>(row, in_tile, from);
      } else {
        pack_rows<uint16_t, 2>(row, in_tile, from);
      }
      done += in_tile;
    }
  }

 private:
  // Rows of one tile, in elements T of which kTogether columns lie side by side. Columns go in blocks, so that the
  // lines that the rows of a tile share stay in the cache.
  template <class T, int kTogether>
  void pack_rows(int64_t row, int64_t count, const std::byte* bytes) {
    constexpr int64_t kBlock = 256;
    constexpr size_t kBytes = kTogether * sizeof(T);
    const int64_t groups = columns_ / kTogether;  // whole ones
    std::byte* tile = data_ + row / kTileRows * tile_bytes(type_, columns_);
    const auto place = [&](int64_t group, int64_t r) {
      return tile + (group * kTileRows + row % kTileRows + r) * static_cast<int64_t>(kBytes);
    };
    const auto from = [&](int64_t group, int64_t r) {
      return bytes + (r * columns_ + group * kTogether) * static_cast<int64_t>(sizeof(T));
    };
    for (int64_t begin = 0; begin < groups; begin += kBlock) {
      const int64_t end = std::min(groups, begin + kBlock);
      for (int64_t r = 0; r < count; ++r) {
        std::byte* to = place(begin, r);
        const std::byte* in = from(begin, r);
        for (int64_t g = begin; g < end; ++g, to += kTileRows * kBytes, in += kBytes) std::memcpy(to, in, kBytes);
      }
    }
    if (groups * kTogether == columns_) return;
    for (int64_t r = 0; r < count; ++r) std::memcpy(place(groups, r), from(groups, r), sizeof(T));  // an odd column
  }

  int64_t num_rows_, columns_, next_row_ = 0;
  DType type_;
  WeightUse use_;
  float offset_;
  Layout layout_;
  std::byte* data_;  // the component's, which the weight owns
};

}  // namespace

int64_t tile_bytes(DType type, int64_t columns) {
  if (is_block(type)) return quant_tile_bytes(type, columns / kQuantBlock);
  const int64_t held = type == DType::kBF16 ? (columns + 1) / 2 * 2 : columns;
  return kTileRows * held * dtype_bytes(type);
}

std::unique_ptr<WeightSink> make_packing_sink(Weight& weight, DType type, WeightUse use, float offset,
                                              BufferArena& arena) {
  return std::make_unique<PackingSink>(weight, type, use, offset, arena);
}

float packed_value(const Component& values, int64_t columns, int64_t row, int64_t column) {
  if (values.layout == Layout::kQuantTiles) {
    float value;
    read_quant_row(values.type, values.bytes.data(), columns / kQuantBlock, row, column, 1, &value);
    return value;
  }
  return element_to_float(values.type, values.bytes.data(), tile_index(values.layout, columns, row, column));
}

void dequantize_row(const Component& values, int64_t columns, int64_t row, float* out) {
  if (values.layout == Layout::kQuantTiles) {
    read_quant_row(values.type, values.bytes.data(), columns / kQuantBlock, row, 0, columns, out);
  } else {
    for (int64_t c = 0; c < columns; ++c) out[c] = packed_value(values, columns, row, c);
  }
}

void place_inputs(const Weight& weight, const float* x, float* held) {
  std::fill_n(held, weight.columns, 0.0f);
  for (const ColumnRun& run : weight.inputs->runs) std::copy_n(x + run.input, run.count, held + run.held);
}

void unpack_row(const Component& values, int64_t columns, int64_t row, float* out) {
  const auto* words = values.bytes.as<const float>();
  const auto* halves = values.bytes.as<const uint16_t>();
  if (values.layout == Layout::kQuantTiles) {
    dequantize_row(values, columns, row, out);
    for (int64_t c = 0; c < columns; ++c) out[c] += 0.0f;
    return;
  }
  switch (values.type) {
    case DType::kBF16:
      for (int64_t c = 0; c < columns; ++c)
        out[c] = bf16_to_f32(halves[tile_index(Layout::kTile16Pairs, columns, row, c)]) + 0.0f;
      break;
    case DType::kF16:
      for (int64_t c = 0; c < columns; ++c)
        out[c] = f16_to_f32(halves[tile_index(Layout::kTile16, columns, row, c)]) + 0.0f;
      break;
    default:
      for (int64_t c = 0; c < columns; ++c) out[c] = words[tile_index(Layout::kTile16, columns, row, c)] + 0.0f;
      break;
  }
}

const Component& linear_values(const Weight& weight) {
  const Component* values = weight.find(ComponentRole::kValues);
  COPRIME_CHECK(values != nullptr && (is_float(values->type) || is_block(values->type)), "{}: no values", weight.name);
  COPRIME_CHECK(values->layout == layout_of(values->type), "{}: not packed for linear()", weight.name);
  COPRIME_CHECK(
      static_cast<int64_t>(values->bytes.size()) >= tiles_of(weight.rows) * tile_bytes(values->type, weight.columns),
      "{}: {} bytes for {} x {}", weight.name, values->bytes.size(), weight.rows, weight.columns);
  return *values;
}

const float* linear_bias(const Weight& weight) {
  const Component* bias = weight.find(ComponentRole::kBias);
  if (bias == nullptr) return nullptr;
  COPRIME_CHECK(bias->type == DType::kF32 && bias->layout == Layout::kRowMajor &&
                    static_cast<int64_t>(bias->bytes.size()) >= weight.rows * 4,
                "{}: a bias of {} bytes for {} rows", weight.name, bias->bytes.size(), weight.rows);
  return bias->bytes.as<const float>();
}

}  // namespace coprime
