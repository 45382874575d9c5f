// The gates that a padded geometry must pass before the hardware for it is there: A runs it on one rank against the
// stock one, B pads the heads alone and runs on two ranks (cut across ranks, which A cannot show). Dummies are held
// with their fill, as a kernel that needs uniform shapes would have them.
#pragma once

#include <string>
#include <vector>

#include "tools/eval.h"

namespace coprime {

enum class PaddingGate { kA, kB };

struct GateOptions {
  PaddingGate gate = PaddingGate::kA;
  int pad_for = 3;
  EvalOptions eval;  // of both arms; ranks and plan are set by the gate
};

struct GateReport {
  struct Check {
    std::string name;
    bool passed = false;
    std::string text;
  };
  // What computes on a rank: how many of its matrices of a format, or what else, go to which row of the kernels'
  // tables.
  struct KernelUse {
    int rank = 0;
    std::string operation, format, kernel;
    int matrices = 0;  // 0: no matrices
    bool operator==(const KernelUse&) const = default;
  };
  struct Arm {
    int ranks = 1;
    Counts counts;  // of the geometry
    std::string accuracy;
    std::vector<KernelUse> kernels;  // on every rank, in the order of ranks
    double step_ms = 0;              // mean over all steps
    int tensors = 0, padded_tensors = 0;
    int64_t correct = 0, questions = 0;
  };
  PaddingGate gate = PaddingGate::kA;
  Arm stock, padded;
  std::vector<Check> checks;
  EvalComparison comparison;

  bool passed() const;
  std::string text() const;
  std::string json() const;
};

// Whether padding moves nothing to another kernel, with the first that it moves.
GateReport::Check compare_kernels(const std::vector<GateReport::KernelUse>& stock,
                                  const std::vector<GateReport::KernelUse>& padded);

// Runs both arms, one after the other. A check that does not hold is part of the report; an Error is what keeps an arm
// from running; Error(kUsage) where the padded geometry is the stock one.
GateReport run_padding_gate(const GateOptions& options, const std::vector<Question>& questions);

}  // namespace coprime
