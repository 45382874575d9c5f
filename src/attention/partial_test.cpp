#include "attention/partial.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace coprime::attention {
namespace {

template <class Number>
struct State {
  std::vector<Number> m, l, o;
  State(size_t rows, size_t d) : m(rows), l(rows), o(rows * d) { clear(view()); }
  Partial<Number> view() { return {m, l, o}; }
  Partial<const Number> constant() const { return {m, l, o}; }
};

constexpr size_t kRows = 2, kD = 3;

// Keys [begin, end) of a fixed random sequence.
struct Sequence {
  std::vector<double> scores, values;
  explicit Sequence(size_t tokens) {
    std::mt19937_64 random(7);
    std::uniform_real_distribution<double> score(-30, 30), value(-1, 1);
    for (size_t i = 0; i < tokens * kRows; ++i) scores.push_back(score(random));
    for (size_t i = 0; i < tokens * kD; ++i) values.push_back(value(random));
  }
  void add(State<double>& into, size_t begin, size_t end) const {
    for (size_t token = begin; token < end; ++token)
      for (size_t row = 0; row < kRows; ++row)
        add_key<double>(into.view(), row, scores[token * kRows + row], {values.data() + token * kD, kD});
  }
  // softmax(scores) V as its definition reads.
  std::vector<double> attention() const {
    std::vector<double> out(kRows * kD);
    for (size_t row = 0; row < kRows; ++row) {
      double sum = 0;
      for (size_t token = 0; token < scores.size() / kRows; ++token) {
        const double weight = std::exp(scores[token * kRows + row]);
        sum += weight;
        for (size_t i = 0; i < kD; ++i) out[row * kD + i] += weight * values[token * kD + i];
      }
      for (size_t i = 0; i < kD; ++i) out[row * kD + i] /= sum;
    }
    return out;
  }
};

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << i;
}

TEST(Partial, of_parts_merged_in_any_tree_is_softmax_attention) {
  const Sequence sequence(40);
  for (const size_t cut : {size_t{0}, size_t{1}, size_t{13}, size_t{39}, size_t{40}}) {
    State<double> left(kRows, kD), right(kRows, kD), end(kRows, kD);
    sequence.add(left, 0, cut / 2);
    sequence.add(right, cut / 2, cut);
    sequence.add(end, cut, 40);
    merge<double>(end.view(), right.constant());
    merge<double>(end.view(), left.constant());
    normalise(end.view());
    expect_near(end.o, sequence.attention(), 1e-14);
  }
}

TEST(Partial, merge_is_commutative_and_associative_to_rounding) {
  const Sequence sequence(30);
  State<double> a(kRows, kD), b(kRows, kD), c(kRows, kD);
  sequence.add(a, 0, 10);
  sequence.add(b, 10, 17);
  sequence.add(c, 17, 30);
  State<double> ab = a, ba = b;
  merge<double>(ab.view(), b.constant());
  merge<double>(ba.view(), a.constant());
  expect_near(ab.o, ba.o, 0);  // a sum of two products: the same bits
  State<double> bc = b, a_bc = a;
  merge<double>(bc.view(), c.constant());
  merge<double>(a_bc.view(), bc.constant());
  merge<double>(ab.view(), c.constant());
  normalise(ab.view());
  normalise(a_bc.view());
  expect_near(ab.o, a_bc.o, 1e-14);
}

TEST(Partial, without_keys_changes_nothing_and_two_of_them_stay_without) {
  const Sequence sequence(5);
  State<double> some(kRows, kD), none(kRows, kD), also_none(kRows, kD);
  sequence.add(some, 0, 5);
  const State<double> before = some;
  merge<double>(some.view(), none.constant());
  expect_near(some.l, before.l, 0);
  expect_near(some.o, before.o, 0);
  merge<double>(none.view(), before.constant());
  expect_near(none.o, before.o, 0);
  State<double> empty(kRows, kD);
  merge<double>(empty.view(), also_none.constant());
  EXPECT_EQ(empty.m[0], -std::numeric_limits<double>::infinity());
  expect_near(empty.l, {0, 0}, 0);
  normalise(empty.view());
  expect_near(empty.o, std::vector<double>(kRows * kD), 0);
}

TEST(Partial, of_equal_scores_counts_its_keys_exactly) {
  State<float> total(1, 1);
  const float one = 1;
  for (int rank = 0; rank < 64; ++rank) {
    State<float> part(1, 1);
    for (int token = 0; token < 100; ++token) add_key<float>(part.view(), 0, 0.f, {&one, 1});
    merge<float>(total.view(), part.constant());
  }
  EXPECT_EQ(total.l[0], 6400.f);
  EXPECT_EQ(total.o[0], 6400.f);
}

TEST(Partial, survives_a_row_that_is_masked_in_its_first_tile) {
  State<double> state(1, 1);
  const double value = 3;
  add_key<double>(state.view(), 0, -std::numeric_limits<double>::infinity(), {&value, 1});
  EXPECT_EQ(state.l[0], 0);
  add_key<double>(state.view(), 0, 2.0, {&value, 1});
  normalise(state.view());
  EXPECT_EQ(state.o[0], 3);
}

}  // namespace
}  // namespace coprime::attention
