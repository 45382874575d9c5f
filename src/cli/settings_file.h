// The file of --settings: TOML as CLI11 reads it, within bounds, and where in it a value stands.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace coprime {

// "generate.ranks " -> "ranks"; quotes are taken off.
std::string last_name(std::string_view path);

class SettingsFile : public CLI::ConfigTOML {
 public:
  // CLI::FileError beyond 1 MiB. Keeps the lines.
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override;

  // Where `name` (of a flag, without its dashes) is set, from 1; 0: nowhere.
  size_t line_of(std::string_view name) const;

 private:
  mutable std::vector<std::string> lines_;
};

}  // namespace coprime
