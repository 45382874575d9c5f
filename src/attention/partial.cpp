#include "attention/partial.h"

#include <algorithm>

#include "base/check.h"

namespace coprime::attention {
namespace {

template <class Number>
size_t columns(Partial<Number> state) {
  COPRIME_CHECK(state.m.size() == state.l.size(), "m of {} rows, l of {}", state.m.size(), state.l.size());
  if (state.m.empty()) return 0;
  COPRIME_CHECK(state.o.size() % state.m.size() == 0, "o of {} numbers in {} rows", state.o.size(), state.m.size());
  return state.o.size() / state.m.size();
}

}  // namespace

template <class Number>
void clear(Partial<Number> state) {
  std::ranges::fill(state.m, -std::numeric_limits<Number>::infinity());
  std::ranges::fill(state.l, Number{0});
  std::ranges::fill(state.o, Number{0});
}

template <class Number>
void add_key(Partial<Number> state, size_t row, Number score, std::span<const Number> value) {
  const size_t d = columns(state);
  COPRIME_CHECK(row < state.m.size() && value.size() == d, "row {} of {}, a value of {} numbers, d = {}", row,
                state.m.size(), value.size(), d);
  const Number highest = std::max(state.m[row], score);
  const Number old = rescale(state.m[row], highest), fresh = rescale(score, highest);
  state.m[row] = highest;
  state.l[row] = state.l[row] * old + fresh;
  for (size_t i = 0; i < d; ++i) state.o[row * d + i] = state.o[row * d + i] * old + value[i] * fresh;
}

template <class Number>
void merge(Partial<Number> into, Partial<const Number> other) {
  const size_t d = columns(into);
  COPRIME_CHECK(other.m.size() == into.m.size() && columns(other) == d, "{} x {} into {} x {}", other.m.size(),
                columns(other), into.m.size(), d);
  for (size_t row = 0; row < into.m.size(); ++row) {
    const Number highest = std::max(into.m[row], other.m[row]);
    const Number ours = rescale(into.m[row], highest), theirs = rescale(other.m[row], highest);
    into.m[row] = highest;
    into.l[row] = into.l[row] * ours + other.l[row] * theirs;
    for (size_t i = row * d; i < (row + 1) * d; ++i) into.o[i] = into.o[i] * ours + other.o[i] * theirs;
  }
}

template <class Number>
void normalise(Partial<Number> state) {
  const size_t d = columns(state);
  for (size_t row = 0; row < state.m.size(); ++row)
    for (size_t i = row * d; i < (row + 1) * d; ++i)
      state.o[i] = state.l[row] == 0 ? Number{0} : state.o[i] / state.l[row];
}

template void clear(Partial<float>);
template void clear(Partial<double>);
template void add_key(Partial<float>, size_t, float, std::span<const float>);
template void add_key(Partial<double>, size_t, double, std::span<const double>);
template void merge(Partial<float>, Partial<const float>);
template void merge(Partial<double>, Partial<const double>);
template void normalise(Partial<float>);
template void normalise(Partial<double>);

}  // namespace coprime::attention
