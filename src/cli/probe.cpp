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

// What was measured before may be measured again; anything else that stands there is somebody's.
void refuse_other_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return;
  try {
    read_machine(path);
  } catch (const Error&) {
    fail(ErrorKind::kUsage, "--out {}: it exists and is no file of a machine: name another file, or remove it",
         path.string());
  }
}

}  // namespace

void run_probe(const ProbeSettings& settings) {
  if (!settings.out.empty()) {
    check_output_flag("--out", settings.out, {});
    refuse_other_file(settings.out);
  }
  const std::string text = machine_json(probe_host()) + "\n";
  if (settings.out.empty()) return print(text);
  write_output(settings.out, text);
}

}  // namespace coprime
