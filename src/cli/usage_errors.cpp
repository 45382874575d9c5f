#include "cli/usage_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/printable.h"

namespace coprime {
namespace {

constexpr std::string_view kNoSetting = "INI was not able to parse ";

// "{auto,shm,tcp}" or "[--prompt,--chat]" -> "auto, shm, tcp"
std::string list_of(std::string_view text, char open, char close) {
  const size_t begin = text.find(open), end = text.find(close);
  if (begin == text.npos || end == text.npos || end < begin) return std::string(text);
  std::string list;
  for (const char c : text.substr(begin + 1, end - begin - 1)) {
    list += c;
    if (c == ',') list += ' ';
  }
  return list;
}

std::string commands_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

// "--link: rope not in {auto,shm}" and the like.
std::string plain(const CLI::App& app, const std::string& text) {
  const size_t colon = text.find(": ");
  const std::string flag = text.substr(0, std::min(colon, text.size()));
  if (const size_t at = text.find(" not in {"); colon != text.npos && at != text.npos && at > colon) {
    return fmt::format("{} is \"{}\"; expected one of {}", flag, text.substr(colon + 2, at - colon - 2),
                       list_of(text.substr(at), '{', '}'));
  }
  if (colon != text.npos && text.find(" required ", colon) != text.npos && text.ends_with(" missing"))
    return fmt::format("{} needs a value behind it", flag);
  if (text.starts_with("Exactly 1 option from "))
    return fmt::format("give one of {}, and no other", list_of(text, '[', ']'));
  if (text.starts_with("A subcommand is required"))
    return fmt::format("a command is missing: expected one of {}", commands_of(app));
  if (text.starts_with(kNoSetting)) return fmt::format("{} is no setting", text.substr(kNoSetting.size()));
  return text;
}

// "settings.toml, line 3: " or "COPRIME_RANKS: ", as the value came from there.
std::string origin(const CLI::App& app, const CLI::App& command, const std::string& text,
                   const std::vector<std::string>& arguments, const SettingsFile& file) {
  const bool no_setting = text.starts_with(kNoSetting);
  const std::string flag =
      no_setting ? "--" + last_name(text.substr(kNoSetting.size())) : text.substr(0, text.find(": "));
  if (!flag.starts_with("--") || flag.find(' ') != flag.npos) return {};
  const auto is_flag = [&](const std::string& argument) {
    return argument == flag || argument.starts_with(flag + "=");
  };
  if (!no_setting && std::ranges::any_of(arguments, is_flag)) return {};
  if (const size_t line = file.line_of(flag.substr(2)); line > 0)
    return fmt::format("{}, line {}: ", app.get_config_ptr()->as<std::string>(), line);
  const CLI::Option* option = command.get_option_no_throw(flag);
  if (option == nullptr || option->get_envname().empty() || std::getenv(option->get_envname().c_str()) == nullptr)
    return {};
  return option->get_envname() + ": ";
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments,
                        const SettingsFile& file) {
  std::string command;
  const CLI::App* deepest = &app;
  while (!deepest->get_subcommands().empty()) {
    deepest = deepest->get_subcommands()[0];
    command += deepest->get_name() + " ";
  }
  // A word that nobody knows explains what is missing.
  const auto unknown = app.remaining(true);
  const std::string what = unknown.empty()
                               ? origin(app, *deepest, error.what(), arguments, file) + plain(*deepest, error.what())
                               : fmt::format("{} is no flag or command here", unknown[0]);
  return fmt::format("{} (coprime {}--help lists what there is)", printable(what), command);
}

}  // namespace coprime
