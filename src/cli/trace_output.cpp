#include "cli/trace_output.h"

#include <cstdio>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/outputs.h"

namespace coprime {

TraceOutput::TraceOutput(const std::string& path, const std::string& model) : path_(path) {
  if (wanted()) check_output_flag("--trace", path_, {model});
}

void TraceOutput::write(const Front& front, std::span<const StepTrace> steps) const {
  if (!wanted()) return;
  try {
    write_output(path_, trace_json(steps, front.schedule()));
  } catch (const Error& error) {
    std::fprintf(stderr, "coprime: warning: --trace %s\n", error.what());
  }
}

}  // namespace coprime
