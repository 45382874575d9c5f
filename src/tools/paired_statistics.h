// Two runs over the same questions: is one worse? Pure. b questions are right in the base alone, c in the other alone.
#pragma once

#include <cstdint>

namespace coprime {

struct PairedStatistics {
  int64_t questions = 0, b = 0, c = 0;

  // The exact McNemar test, two-sided: min(1, 2 * sum_{i <= min(b, c)} C(b + c, i) / 2^(b + c)).
  double p_value() const;
  double difference() const;      // (c - b) / questions: of the other's accuracy and the base's
  double standard_error() const;  // sqrt(b + c - (b - c)^2 / questions) / questions
  double lower() const;           // of the difference's 95% interval
  double upper() const;
  // Whether the interval excludes a loss of `points` percentage points.
  bool non_inferior(double points = 2) const { return questions > 0 && lower() > -points / 100; }
};

}  // namespace coprime
