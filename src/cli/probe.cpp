// coprime probe: measures this host, and prints or writes what coprime plan --machine reads.
#include "tools/probe.h"

#include <filesystem>

#include "base/error.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "plan/machine_file.h"

namespace coprime {
namespace {

bool is_machine(const std::filesystem::path& path) {
  try {
    read_machine(path);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

void run_probe(const ProbeSettings& settings) {
  if (!settings.out.empty()) {
    check_output_flag("--out", settings.out, {});
    check_replaces("--out", settings.out, "file of a machine", is_machine);
  }
  const std::string text = machine_json(probe_host()) + "\n";
  if (settings.out.empty()) return print(text);
  write_output(settings.out, text);
}

}  // namespace coprime
