// A matrix of a model on a device: its logical shape, and the components that its format consists of (values, and for
// other formats scales and minima), each packed as the device's kernels like.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace coprime {

enum class ComponentRole : uint8_t { kValues, kBias };

enum class Layout : uint8_t {
  kRowMajor,  // [rows][columns]
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

struct Weight {
  std::string name;
  int64_t rows = 0, columns = 0;  // outputs, inputs
  std::vector<Component> components;

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
