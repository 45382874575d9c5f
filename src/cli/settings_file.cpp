#include "cli/settings_file.h"

#include <algorithm>
#include <sstream>

namespace coprime {
namespace {

constexpr size_t kMaxBytes = size_t{1} << 20;

}  // namespace

std::string last_name(std::string_view path) {
  std::string name = CLI::detail::trim_copy(std::string(path.substr(path.rfind('.') + 1)));
  return CLI::detail::remove_quotes(name);
}

std::vector<CLI::ConfigItem> SettingsFile::from_config(std::istream& input) const {
  std::string text(kMaxBytes + 1, '\0');
  input.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(input.gcount()));
  if (text.size() > kMaxBytes)
    throw CLI::FileError("--settings: the file is larger than 1 MiB: is it one of settings?",
                         CLI::ExitCodes::FileError);
  lines_.clear();
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) lines_.push_back(line);
  std::istringstream whole(text);
  return CLI::ConfigTOML::from_config(whole);
}

size_t SettingsFile::line_of(std::string_view name) const {
  const auto sets = [&](const std::string& line) { return last_name(line.substr(0, line.find('='))) == name; };
  const auto found = std::ranges::find_if(lines_, sets);
  return found == lines_.end() ? 0 : static_cast<size_t>(found - lines_.begin()) + 1;
}

}  // namespace coprime
