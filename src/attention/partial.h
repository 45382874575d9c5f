// A partial attention state over a part of the keys: for each row the largest score m, the sum l of exp(score - m), and
// the output o before it is divided by l. The merge is associative and commutative in real arithmetic; no key at all is
// (-inf, 0, 0), which changes nothing. ADR-0060, section 4.
#pragma once

#include <cmath>
#include <limits>
#include <span>

namespace coprime::attention {

template <class Number>
struct Partial {
  std::span<Number> m, l, o;  // [rows], [rows], [rows, d]
};

// The factor that takes a sum from the maximum `from` to the maximum `to` >= from: exp(-inf - -inf) is 0, so that rows
// without keys stay (-inf, 0, 0) instead of becoming NaN.
template <class Number>
Number rescale(Number from, Number to) {
  return from == -std::numeric_limits<Number>::infinity() ? Number{0} : std::exp(from - to);
}

// (-inf, 0, 0) in every row.
template <class Number>
void clear(Partial<Number> state);

// One row more of keys: score s with value v [d], into row `row` of the state.
template <class Number>
void add_key(Partial<Number> state, size_t row, Number score, std::span<const Number> value);

// Into `into`: m = max(m, m'), l = l exp(m_into - m) + l' exp(m_other - m), o likewise; the product of `into` is added
// first. The states have the same rows and d.
template <class Number>
void merge(Partial<Number> into, Partial<const Number> other);

// o / l, row by row; a row without keys gives 0.
template <class Number>
void normalise(Partial<Number> state);

}  // namespace coprime::attention
