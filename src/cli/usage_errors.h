// What is wrong with a command line, in words for a person: CLI11's own, where they are not plain.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace coprime {

// One line without the program's name: what was found, what was expected, and where to read more.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace coprime
