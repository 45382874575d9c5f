// What is wrong with a command line, in words for a person: CLI11's own, where they are not plain.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "cli/settings_file.h"

namespace coprime {

// One line without the program's name: where it was found, if not among the arguments, what was found, what was
// expected, and where to read more. `file`: of the app's --settings.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments,
                        const SettingsFile& file);

}  // namespace coprime
