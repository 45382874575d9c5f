#include "base/scalar_math.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace coprime {
namespace {

constexpr double kLn2High = 0x1.62e42fefa39efp-1;
constexpr double kLn2Low = 0x1.abc9e3b39803fp-56;

}  // namespace

// exp(x) = 2^n exp(r), |r| <= ln2/2, and Taylor's series of exp(r) to r^14.
double portable_exp(double x) {
  const double n = std::floor(x * (1.0 / kLn2High) + 0.5);
  // n has at most 11 bits; ln2 split at 32 bits keeps n * high exact.
  constexpr double kHigh32 = 0x1.62e42fep-1;
  constexpr double kRest = 0x1.f473de6af278fp-30;  // ln2 - kHigh32
  const double r = (x - n * kHigh32) - n * kRest;
  double sum = 1.0;
  for (int i = 14; i >= 1; --i) sum = 1.0 + sum * r / i;
  return sum * std::bit_cast<double>((static_cast<int64_t>(n) + 1023) << 52);
}

// log(m 2^e) = e ln2 + 2 atanh((m-1)/(m+1)), sqrt(1/2) <= m < sqrt(2).
double portable_log(double x) {
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0xfffffffffffffULL) | 0x3ff0000000000000ULL);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0), s2 = s * s;
  double sum = 0.0;
  for (int i = 25; i >= 1; i -= 2) sum = sum * s2 + 1.0 / i;
  return static_cast<double>(exponent) * kLn2High + (2.0 * s * sum + static_cast<double>(exponent) * kLn2Low);
}

// x = n pi/2 + r, |r| <= pi/4, with pi/2 in three parts (Cody and Waite), and Taylor's series of r.
void portable_sincos(double x, double* sine, double* cosine) {
  constexpr double kHalfPi1 = 0x1.921fb544p+0;        // 32 bits: n * kHalfPi1 is exact for n < 2^21
  constexpr double kHalfPi2 = 0x1.0b4611a6p-34;       // the next 32
  constexpr double kHalfPi3 = 0x1.3198a2e037073p-69;  // the rest
  const double n = std::floor(x * 0.6366197723675814 + 0.5);
  const double r = ((x - n * kHalfPi1) - n * kHalfPi2) - n * kHalfPi3, r2 = r * r;
  double s = 1.0, c = 1.0;
  for (int i = 10; i >= 1; --i) {
    s = 1.0 - s * r2 / ((2 * i) * (2 * i + 1));
    c = 1.0 - c * r2 / ((2 * i - 1) * (2 * i));
  }
  s *= r;
  switch (static_cast<int64_t>(n) & 3) {
    case 0:
      *sine = s, *cosine = c;
      break;
    case 1:
      *sine = c, *cosine = -s;
      break;
    case 2:
      *sine = -s, *cosine = -c;
      break;
    default:
      *sine = -c, *cosine = s;
      break;
  }
}

}  // namespace coprime
