#include "tools/paired_statistics.h"

#include <algorithm>
#include <cmath>

namespace coprime {
namespace {

constexpr double kNormal95 = 1.959963984540054;  // the normal distribution's quantile at 0.975

}  // namespace

double PairedStatistics::p_value() const {
  const int64_t n = b + c, least = std::min(b, c);
  if (n == 0) return 1;
  // Logarithms, as 2^n and the binomials pass double's range.
  const double log_all = static_cast<double>(n) * std::log(2.0);
  double sum = 0;
  for (int64_t i = 0; i <= least; ++i) {
    const double log_choose = std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(i + 1)) -
                              std::lgamma(static_cast<double>(n - i + 1));
    sum += std::exp(log_choose - log_all);
  }
  return std::min(1.0, 2 * sum);
}

double PairedStatistics::difference() const {
  return questions == 0 ? 0 : static_cast<double>(c - b) / static_cast<double>(questions);
}

double PairedStatistics::standard_error() const {
  if (questions == 0) return 0;
  const auto n = static_cast<double>(questions), gap = static_cast<double>(b - c);
  return std::sqrt(std::max(0.0, static_cast<double>(b + c) - gap * gap / n)) / n;
}

double PairedStatistics::lower() const { return difference() - kNormal95 * standard_error(); }
double PairedStatistics::upper() const { return difference() + kNormal95 * standard_error(); }

}  // namespace coprime
