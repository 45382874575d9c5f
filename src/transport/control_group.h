// Where the control groups of this process have their files, in either version.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coprime {

struct ControlGroups {
  int version = 2;
  // The process's own group, and those above it up to the root. A limit holds for all that lie below. A container may
  // see its group as the root, so that folders may be missing.
  std::vector<std::filesystem::path> folders;
};

// The hierarchies that limit what `controller` ("cpu", "memory") counts: version 2's, version 1's, or both in a mixed
// system. `proc` and `cgroup` are the roots /proc and /sys/fs/cgroup.
std::vector<ControlGroups> control_groups(const std::filesystem::path& proc, const std::filesystem::path& cgroup,
                                          std::string_view controller);

// The first line of a file; nothing if there is none.
std::optional<std::string> first_line(const std::filesystem::path& file);

}  // namespace coprime
