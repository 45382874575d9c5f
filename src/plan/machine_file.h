// The one form in which tools write and read machines: `coprime probe` writes it, `coprime link --json` writes a part
// of it, people write it by hand, `coprime plan --machine` reads it. One JSON object; docs/planning.md lists its keys.
//
// Refused, with path, key, what was expected and found: unknown keys, figures that are not positive, ranks that stand
// twice, links between ranks that no host has, a file with neither hosts nor gates.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "plan/machine.h"

namespace coprime {

// Error(kModel) as above.
Machine read_machine(const std::filesystem::path& path);
Machine parse_machine(std::string_view json, const std::string& where);

// Hosts of `later` that say nothing of their speed (those of `coprime link`) have that of `earlier`'s host of the same
// name, or else its first one; what `later` leaves out stays.
Machine merge_machines(const Machine& earlier, Machine later);

std::string machine_json(const Machine& machine);

}  // namespace coprime
