#include "transport/control_group.h"

#include <fmt/format.h>

#include <fstream>

namespace coprime {
namespace {

std::vector<std::filesystem::path> folders_up(const std::filesystem::path& root, const std::string& path) {
  std::vector<std::filesystem::path> folders;
  for (auto relative = std::filesystem::path(path).relative_path();; relative = relative.parent_path()) {
    folders.push_back(root / relative);
    if (relative.empty()) return folders;
  }
}

}  // namespace

std::vector<ControlGroups> control_groups(const std::filesystem::path& proc, const std::filesystem::path& cgroup,
                                          std::string_view controller) {
  std::vector<ControlGroups> found;
  // A line is "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers.
  std::ifstream stream(proc / "self" / "cgroup");
  for (std::string line; std::getline(stream, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (controllers.empty()) {
      found.push_back({2, folders_up(cgroup, path)});
    } else if (fmt::format(",{},", controllers).find(fmt::format(",{},", controller)) != std::string::npos) {
      // Mounted under all names of the line, mostly with a link for each one.
      std::error_code error;
      const bool has_link = std::filesystem::exists(cgroup / controller, error);
      found.push_back({1, folders_up(has_link ? cgroup / controller : cgroup / controllers, path)});
    }
  }
  return found;
}

std::optional<std::string> first_line(const std::filesystem::path& file) {
  std::string line;
  if (std::ifstream stream(file); !std::getline(stream, line)) return std::nullopt;
  return line;
}

}  // namespace coprime
