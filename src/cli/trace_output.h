// The file of --trace. A trace is a help, not the answer: where its file cannot be written, one warning on standard
// error says so, and the answer goes on.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "engine/front.h"
#include "engine/step_trace.h"
#include "trace/chrome_trace.h"

namespace coprime {

class TraceOutput {
 public:
  explicit TraceOutput(const std::string& path);  // opens the file; an empty path: no trace is wanted
  bool wanted() const { return file_.has_value(); }
  void write(const Front& front, std::span<const StepTrace> steps);

 private:
  std::optional<TraceFile> file_;
};

}  // namespace coprime
