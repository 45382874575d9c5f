#include "tools/paired_statistics.h"

#include <algorithm>
#include <cmath>

namespace coprime {
namespace {

constexpr double kNormal95 = 1.959963984540054;  // the normal distribution's quantile at 0.975
constexpr double kOneSided = 0.05;               // how often a one-sided bound errs

double log_choose(int64_t n, int64_t k) {
  return std::lgamma(static_cast<double>(n + 1)) - std::lgamma(static_cast<double>(k + 1)) -
         std::lgamma(static_cast<double>(n - k + 1));
}

// The chance of at most k among n, each with the chance p; 0 < p < 1.
double at_most(int64_t k, int64_t n, double p) {
  double sum = 0;
  for (int64_t i = 0; i <= k; ++i)
    sum +=
        std::exp(log_choose(n, i) + static_cast<double>(i) * std::log(p) + static_cast<double>(n - i) * std::log1p(-p));
  return sum;
}

// The largest proportion that k among n does not exclude, by bisection as at_most() falls with p.
double upper_bound(int64_t k, int64_t n) {
  if (k >= n) return 1;
  if (k == 0) return 1 - std::pow(kOneSided, 1 / static_cast<double>(n));
  double low = static_cast<double>(k) / static_cast<double>(n), high = 1;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    if (middle == low || middle == high) break;
    (at_most(k, n, middle) > kOneSided ? low : high) = middle;
  }
  return high;
}

double lower_bound(int64_t k, int64_t n) { return 1 - upper_bound(n - k, n); }

}  // namespace

double PairedStatistics::p_value() const {
  const int64_t n = b + c, least = std::min(b, c);
  if (n == 0) return 1;
  // Logarithms, as 2^n and the binomials pass double's range.
  const double log_all = static_cast<double>(n) * std::log(2.0);
  double sum = 0;
  for (int64_t i = 0; i <= least; ++i) {
    sum += std::exp(log_choose(n, i) - log_all);
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

double PairedStatistics::lower() const {
  if (b > 0 && c > 0) return difference() - kNormal95 * standard_error();
  return questions == 0 ? -1 : lower_bound(c, questions) - upper_bound(b, questions);
}

double PairedStatistics::upper() const {
  if (b > 0 && c > 0) return difference() + kNormal95 * standard_error();
  return questions == 0 ? 1 : upper_bound(c, questions) - lower_bound(b, questions);
}

std::optional<int64_t> PairedStatistics::questions_needed(double points) const {
  const double margin = points / 100, room = difference() + margin;
  if (questions == 0 || room <= 0) return std::nullopt;
  const double of_none = std::log(kOneSided) / std::log1p(-margin);
  const double deviations = kNormal95 * standard_error() / room;  // Wald's, and its width falls with the root
  const double of_wald = deviations * deviations * static_cast<double>(questions);
  return static_cast<int64_t>(std::ceil(std::max(of_none, of_wald)));
}

}  // namespace coprime
