// The file of --trace. A trace is a help, not the answer: where its file cannot be written in the end, one warning on
// standard error says so, and the answer stands.
#pragma once

#include <span>
#include <string>

#include "engine/front.h"
#include "engine/step_trace.h"

namespace coprime {

class TraceOutput {
 public:
  // An empty path: no trace is wanted. Error as check_output_flag() has it.
  TraceOutput(const std::string& path, const std::string& model);
  bool wanted() const { return !path_.empty(); }
  void write(const Front& front, std::span<const StepTrace> steps) const;

 private:
  std::string path_;
};

}  // namespace coprime
