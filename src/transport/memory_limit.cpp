#include "transport/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace coprime {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

std::optional<int64_t> number_in(const std::filesystem::path& file) {
  std::string word;
  if (std::ifstream stream(file); !(stream >> word)) return std::nullopt;
  return number(word);  // "max" is no number: no limit
}

// The value of a "name value" line.
std::optional<int64_t> field(const std::filesystem::path& file, std::string_view name) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    std::string key, value;
    if (words >> key >> value && key == name) return number(value);
  }
  return std::nullopt;
}

// What is left below the limit of one group. File pages that nobody used lately can be dropped, and do not count.
int64_t left_in_group(const std::filesystem::path& group, const char* limit_file, const char* usage_file,
                      std::string_view droppable_field) {
  const std::optional<int64_t> limit = number_in(group / limit_file), usage = number_in(group / usage_file);
  if (!limit || !usage) return kUnlimited;
  const int64_t droppable = field(group / "memory.stat", droppable_field).value_or(0);
  return std::max<int64_t>(*limit - std::max<int64_t>(*usage - droppable, 0), 0);
}

// The smallest rest of the group at root/path and of all those above it. A container may see its group as the root.
int64_t left_in_groups(const std::filesystem::path& root, const std::string& path, const char* limit_file,
                       const char* usage_file, std::string_view droppable_field) {
  int64_t left = kUnlimited;
  std::filesystem::path relative = std::filesystem::path(path).relative_path();
  while (true) {
    left = std::min(left, left_in_group(root / relative, limit_file, usage_file, droppable_field));
    if (relative.empty()) return left;
    relative = relative.parent_path();
  }
}

}  // namespace

int64_t available_memory_bytes(const std::filesystem::path& proc, const std::filesystem::path& cgroup) {
  int64_t available = kUnlimited;
  if (const std::optional<int64_t> kib = field(proc / "meminfo", "MemAvailable:")) available = *kib * 1024;

  // A line is "hierarchy:controllers:path"; version 2 has hierarchy 0 and no controllers.
  std::ifstream stream(proc / "self" / "cgroup");
  for (std::string line; std::getline(stream, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    int64_t left = kUnlimited;
    if (controllers == ",,") {
      left = left_in_groups(cgroup, path, "memory.max", "memory.current", "inactive_file");
    } else if (controllers.find(",memory,") != std::string::npos) {
      left = left_in_groups(cgroup / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes",
                            "total_inactive_file");
    }
    available = std::min(available, left);
  }
  return available;
}

}  // namespace coprime
