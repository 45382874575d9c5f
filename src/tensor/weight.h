// A matrix of a model on a device: its logical shape, and the components that its format consists of (values, and for
// other formats scales and minima), each packed as the device's kernels like.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace coprime {

enum class ComponentRole : uint8_t { kValues, kBias };

enum class Layout : uint8_t {
  kRowMajor,  // [rows][columns]; of a block type rows of blocks, as the file has them
  // Tiles of 16 rows, for kernels whose vector lanes are output rows. Rows past the end are zero.
  kTile16,       // [ceil(rows/16)][columns][16]: F32, F16
  kTile16Pairs,  // [ceil(rows/16)][ceil(columns/2)][16][2]: BF16; a 32-bit lane holds columns 2i (low half) and 2i+1
};

struct Component {
  ComponentRole role = ComponentRole::kValues;
  DType type = DType::kF32;
  Layout layout = Layout::kRowMajor;
  Buffer bytes;
};

// x's columns [input, input + count) stand at [held, held + count) of a weight's.
struct ColumnRun {
  int64_t input = 0, held = 0, count = 0;
  bool operator==(const ColumnRun&) const = default;
};

// How x's columns stand among those that a weight holds, where they are not the same. A rank that is cut by columns
// holds every block that it owns a part of: the columns that no run covers are another rank's, and meet zeros. Columns
// of x that no run covers (dummies) meet nothing.
struct InputMap {
  int64_t columns = 0;  // of x
  std::vector<ColumnRun> runs;
};

struct Weight {
  std::string name;
  int64_t rows = 0, columns = 0;   // outputs; the inputs that it holds: whole blocks
  std::optional<InputMap> inputs;  // none: x has these columns
  std::vector<Component> components;

  int64_t input_columns() const { return inputs ? inputs->columns : columns; }
  const Component* find(ComponentRole role) const {
    for (const Component& component : components) {
      if (component.role == role) return &component;
    }
    return nullptr;
  }
  // The float array of a one-row weight (a norm, a bias): valid for row-major F32 values.
  const float* vector() const { return components.at(0).bytes.as<const float>(); }
};

}  // namespace coprime
