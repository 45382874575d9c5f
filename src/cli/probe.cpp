// coprime probe: measures this host, and prints or writes what coprime plan --machine reads.
#include "tools/probe.h"

#include <span>

#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "plan/machine_file.h"

namespace coprime {

void run_probe(const ProbeSettings& settings) {
  if (!settings.out.empty()) check_output_flag("--out", settings.out, {});
  const std::string text = machine_json(probe_host()) + "\n";
  if (settings.out.empty()) return print(text);
  const auto bytes = std::as_bytes(std::span(text));
  write_output(settings.out, {&bytes, 1});
}

}  // namespace coprime
