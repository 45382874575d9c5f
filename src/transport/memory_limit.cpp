#include "transport/memory_limit.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "transport/control_group.h"

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

}  // namespace

int64_t available_memory_bytes(const std::filesystem::path& proc, const std::filesystem::path& cgroup) {
  int64_t available = kUnlimited;
  if (const std::optional<int64_t> kib = field(proc / "meminfo", "MemAvailable:")) available = *kib * 1024;

  for (const ControlGroups& groups : control_groups(proc, cgroup, "memory")) {
    for (const std::filesystem::path& group : groups.folders) {
      available = std::min(available, groups.version == 2
                                          ? left_in_group(group, "memory.max", "memory.current", "inactive_file")
                                          : left_in_group(group, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                          "total_inactive_file"));
    }
  }
  return available;
}

}  // namespace coprime
