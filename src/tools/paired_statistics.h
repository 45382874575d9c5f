// Two runs over the same questions: is one worse? Pure. b questions are right in the base alone, c in the other alone.
#pragma once

#include <cstdint>
#include <optional>

namespace coprime {

struct PairedStatistics {
  int64_t questions = 0, b = 0, c = 0;

  // The exact McNemar test, two-sided: min(1, 2 * sum_{i <= min(b, c)} C(b + c, i) / 2^(b + c)).
  double p_value() const;
  double difference() const;      // (c - b) / questions: of the other's accuracy and the base's
  double standard_error() const;  // sqrt(b + c - (b - c)^2 / questions) / questions
  // Of the difference's 95% interval. Where b and c are both above 0 it is Wald's, difference +- 1.96 standard errors.
  // That one collapses where a count is 0, which is no proof that such questions do not exist; there the exact
  // one-sided 95% bounds of the two proportions are taken (Clopper and Pearson, 1934): lower(c) - upper(b) and upper(c)
  // - lower(b). Of none among n: at most 1 - 0.05^(1/n), the rule of three. -1 and 1 where there is no question.
  double lower() const;
  double upper() const;
  // Whether the interval excludes a loss of `points` percentage points.
  bool non_inferior(double points = 2) const { return questions > 0 && lower() > -points / 100; }
  // About how many questions exclude it, if the shares of b and c stay what they are; none if no number does.
  std::optional<int64_t> questions_needed(double points = 2) const;
};

}  // namespace coprime
