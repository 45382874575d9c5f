// What data mode is held against: attention by its definition in f64, and inputs whose answers are closed forms.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/number_formats.h"
#include "tl/inputs.h"

namespace coprime::sim {

using tl::CounterInputs, tl::Inputs;

// No score differs from another.
class ZeroQueries : public CounterInputs {
 public:
  void query(int, int64_t, std::span<uint16_t> out) const override { std::ranges::fill(out, uint16_t{0}); }
};

// V[t, c] = 1 where t mod d is c: O l counts the tokens of each residue.
class ResidueValues : public ZeroQueries {
 public:
  void value(int, int64_t token, std::span<uint16_t> out) const override {
    std::ranges::fill(out, uint16_t{0});
    out[static_cast<size_t>(token) % out.size()] = f32_to_bf16(1);
  }
};

inline std::vector<double> row_of(const auto& fill, int64_t d) {
  std::vector<uint16_t> bits(static_cast<size_t>(d));
  fill(std::span<uint16_t>(bits));
  std::vector<double> row;
  for (const uint16_t one : bits) row.push_back(double{bf16_to_f32(one)});
  return row;
}

// Attention of query row `row` over the first `context` keys in f64, by the definition.
inline std::vector<double> attend(const Inputs& inputs, int head, int64_t row, int64_t context, int64_t d) {
  const auto q = row_of([&](auto out) { inputs.query(head, row, out); }, d);
  std::vector<double> scores;
  double largest = -INFINITY;
  for (int64_t t = 0; t < context; ++t) {
    const auto k = row_of([&](auto out) { inputs.key(head, t, out); }, d);
    double score = 0;
    for (size_t i = 0; i < k.size(); ++i) score += q[i] * k[i];
    scores.push_back(score / std::sqrt(static_cast<double>(d)));
    largest = std::max(largest, scores.back());
  }
  double sum = 0;
  std::vector<double> out(static_cast<size_t>(d));
  for (int64_t t = 0; t < context; ++t) {
    const auto v = row_of([&](auto values) { inputs.value(head, t, values); }, d);
    const double p = std::exp(scores[static_cast<size_t>(t)] - largest);
    sum += p;
    for (size_t i = 0; i < v.size(); ++i) out[i] += p * v[i];
  }
  for (double& x : out) x /= sum;
  return out;
}

// Every value is 1.5.
class ConstantValues : public CounterInputs {
 public:
  using CounterInputs::CounterInputs;
  void value(int, int64_t, std::span<uint16_t> out) const override { std::ranges::fill(out, f32_to_bf16(1.5f)); }
};

}  // namespace coprime::sim
