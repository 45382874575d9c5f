#include "cli/trace_output.h"

#include <cstdio>

#include "base/error.h"

namespace coprime {
namespace {

void warn(const Error& error) {
  std::fprintf(stderr, "coprime: warning: --trace: %s; the answer goes on without a trace\n", error.what());
}

}  // namespace

TraceOutput::TraceOutput(const std::string& path) {
  if (path.empty()) return;
  try {
    file_.emplace(path);
  } catch (const Error& error) {
    warn(error);
  }
}

void TraceOutput::write(const Front& front, std::span<const StepTrace> steps) {
  if (!file_) return;
  try {
    file_->write(trace_json(steps, front.schedule()));
  } catch (const Error& error) {
    warn(error);
  }
  file_.reset();
}

}  // namespace coprime
