#include "tl/math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/number_formats.h"
#include "base/scalar_math.h"

namespace coprime::tl {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float get(const Elements& x, int64_t index) {
  if (x.type == Type::kF32) {
    float value;
    std::memcpy(&value, x.data + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, x.data + index * 2, 2);
  return bf16_to_f32(bits);
}

void put(const Elements& x, int64_t index, float value) {
  if (x.type == Type::kF32) {
    std::memcpy(x.data + index * 4, &value, 4);
    return;
  }
  const uint16_t bits = f32_to_bf16(value);
  std::memcpy(x.data + index * 2, &bits, 2);
}

float apply(Binary op, float a, float b) {
  switch (op) {
    case Binary::kMaximum:
      return a < b ? b : a;
    case Binary::kAdd:
      return a + b;
    case Binary::kSub:
      return a == -kInfinity && b == -kInfinity ? -kInfinity : a - b;
    case Binary::kMul:
      return a * b;
    case Binary::kDiv:
      return a / b;
  }
  return 0;
}

float exponential_of(float x) {
  if (x < -104) return 0;  // below the smallest subnormal
  if (x > 89) return kInfinity;
  return static_cast<float>(portable_exp(double{x}));
}

}  // namespace

void fill(Elements out, float value) {
  for (int64_t i = 0; i < out.rows * out.columns; ++i) put(out, i, value);
}

void row_max(Elements x, Elements out) {
  for (int64_t row = 0; row < x.rows; ++row) {
    float largest = -kInfinity;
    for (int64_t i = 0; i < x.columns; ++i) largest = std::max(largest, get(x, row * x.columns + i));
    put(out, row, largest);
  }
}

void row_sum(Elements x, Elements out) {
  for (int64_t row = 0; row < x.rows; ++row) {
    float sum = 0;
    for (int64_t i = 0; i < x.columns; ++i) sum += get(x, row * x.columns + i);
    put(out, row, sum);
  }
}

void exponential(Elements x, Elements out) {
  for (int64_t i = 0; i < x.rows * x.columns; ++i) put(out, i, exponential_of(get(x, i)));
}

void binary(Binary op, Elements a, Elements b, Elements out) {
  const int64_t step = b.columns == a.columns ? 1 : 0;
  for (int64_t row = 0; row < a.rows; ++row) {
    for (int64_t i = 0; i < a.columns; ++i) {
      put(out, row * a.columns + i, apply(op, get(a, row * a.columns + i), get(b, row * b.columns + i * step)));
    }
  }
}

void broadcast(Elements x, Elements out) {
  for (int64_t i = 0; i < out.rows * out.columns; ++i) put(out, i, get(x, i % out.columns));
}

void transpose(Elements x, Elements out) {
  for (int64_t row = 0; row < x.rows; ++row) {
    for (int64_t i = 0; i < x.columns; ++i) put(out, i * x.rows + row, get(x, row * x.columns + i));
  }
}

void mask(Elements out, int64_t diagonal) {
  for (int64_t row = 0; row < out.rows; ++row) {
    for (int64_t i = 0; i < out.columns; ++i) {
      put(out, row * out.columns + i, i <= row + diagonal ? 0.f : -kInfinity);
    }
  }
}

void matrix_product(const float* a, const float* b, float* out, int64_t m, int64_t k, int64_t n) {
  std::fill(out, out + m * n, 0.f);
  for (int64_t row = 0; row < m; ++row) {
    float* const sums = out + row * n;
    for (int64_t i = 0; i < k; ++i) {
      const float factor = a[row * k + i];
      const float* const terms = b + i * n;
      for (int64_t column = 0; column < n; ++column) sums[column] += factor * terms[column];
    }
  }
}

void widen(Elements x, float* out) {
  const int64_t count = x.rows * x.columns;
  if (x.type == Type::kF32) {
    std::memcpy(out, x.data, static_cast<size_t>(count) * 4);
    return;
  }
  const auto* const bits = reinterpret_cast<const uint16_t*>(x.data);
  for (int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(bits[i]);
}

void narrow(const float* x, Elements out) {
  for (int64_t i = 0; i < out.rows * out.columns; ++i) put(out, i, x[i]);
}

}  // namespace coprime::tl
