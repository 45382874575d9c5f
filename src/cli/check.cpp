// coprime check: a checkpoint's headers against a plan, as a table or one JSON object.
#include "tools/check.h"

#include "base/error.h"
#include "cli/commands.h"
#include "cli/outputs.h"

namespace coprime {

void run_check(const CheckSettings& settings) {
  const CheckResult result =
      check_model({.model = settings.model,
                   .drafter = settings.drafter,
                   .plan = {.ranks = settings.ranks, .pad_for = settings.pad_for, .mlp_width = settings.mlp_width},
                   .tensors = settings.tensors});
  print(settings.json ? check_json(result) + "\n" : check_text(result));
  if (result.holds()) return;
  const auto& problems = result.model.holds() ? result.drafter->problems : result.model.problems;
  fail(ErrorKind::kModel, "the checkpoint does not fit: {}", problems[0]);
}

}  // namespace coprime
