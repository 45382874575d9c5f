// What the tests of this folder share: seeded numbers, matrices with guarded strides, weights packed from floats.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "base/number_formats.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"
#include "device/packing.h"

namespace coprime::testing {

inline float round_to(DType type, float value) {
  if (type == DType::kBF16) return bf16_to_f32(f32_to_bf16(value));
  if (type == DType::kF16) return f16_to_f32(f32_to_f16(value));
  return value;
}

// Normal numbers of the given size, representable in `type`.
inline std::vector<float> random_floats(size_t count, uint32_t seed, float size = 1.0f, DType type = DType::kF32) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, size);
  std::vector<float> values(count);
  for (float& value : values) value = round_to(type, normal(generator));
  return values;
}

// Rows of a matrix, `gap` elements apart.
struct Matrix {
  Matrix(int64_t num_rows, int64_t num_columns, int64_t row_gap = 0)
      : rows(num_rows),
        columns(num_columns),
        gap(row_gap),
        data(static_cast<size_t>(num_rows * (num_columns + row_gap))) {}
  Matrix(int64_t num_rows, int64_t num_columns, std::vector<float> values)
      : rows(num_rows), columns(num_columns), data(std::move(values)) {}
  View view() { return {data.data(), rows, columns, columns + gap}; }
  HeadsView heads(int count) {
    const int dim = static_cast<int>(columns) / count;
    return {data.data(), rows, columns + gap, count, dim, dim};
  }
  int64_t rows, columns, gap = 0;
  std::vector<float> data;
};

// The instruction sets that this CPU has kernels for.
inline std::vector<Isa> available_isas() {
  std::vector<Isa> isas;
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (best_isa(isa) == isa) isas.push_back(isa);
  }
  return isas;
}

inline std::unique_ptr<Device> cpu_device(Isa isa, int threads = 1, MathMode math = MathMode::kF32) {
  CpuOptions options;
  options.isa = isa;
  options.math = math;
  options.threads = threads;
  return make_cpu_device(options);
}

// Equal bit for bit; NaNs count as equal to none.
inline ::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) || a[i] != a[i]) {
      return ::testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline ::testing::AssertionResult all_near(const std::vector<float>& a, const std::vector<float>& b, double absolute,
                                           double relative = 0) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double{a[i]} - b[i]);
    if (!(difference <= absolute + relative * std::abs(double{b[i]}))) {
      return ::testing::AssertionFailure() << "at " << i << ": " << a[i] << " and " << b[i] << ", apart " << difference;
    }
  }
  return ::testing::AssertionSuccess();
}

inline Matrix random_matrix(int64_t rows, int64_t columns, uint32_t seed, float size = 1.0f) {
  return {rows, columns, random_floats(static_cast<size_t>(rows * columns), seed, size)};
}

// The values rounded to `type`, handed to the device's sink in uneven pieces.
inline Weight packed(Device& device, DType type, int64_t rows, int64_t columns, const std::vector<float>& values,
                     WeightUse use = WeightUse::kLinear, float offset = 0) {
  Weight weight;
  weight.name = "test";
  weight.rows = rows;
  weight.columns = columns;
  const auto sink = device.pack(weight, type, use, offset);
  for (int64_t first = 0, piece = 5; first < rows; first += piece, piece = piece % 23 + 6) {
    const int64_t count = std::min(piece, rows - first);
    std::vector<std::byte> bytes(static_cast<size_t>(count * columns * dtype_bytes(type)));
    for (int64_t i = 0; i < count * columns; ++i) {
      const float value = values[static_cast<size_t>(first * columns + i)];
      if (type == DType::kF32) {
        reinterpret_cast<float*>(bytes.data())[i] = value;
      } else {
        reinterpret_cast<uint16_t*>(bytes.data())[i] = type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      }
    }
    sink->rows(first, count, bytes);
  }
  return weight;
}

inline void add_bias(Weight& weight, const std::vector<float>& bias) {
  Component component;
  component.role = ComponentRole::kBias;
  component.bytes = Buffer(bias.size() * sizeof(float));
  std::copy(bias.begin(), bias.end(), component.bytes.as<float>());
  weight.components.push_back(std::move(component));
}

}  // namespace coprime::testing
