// How much memory this process may still take: what the system has available, and what its control groups leave it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace coprime {

// Bytes, the smallest of MemAvailable and, for this process's memory control group (v2 or v1) and every group above it,
// the limit less what is used and cannot be dropped. INT64_MAX when the system tells nothing. The roots are parameters
// for tests.
int64_t available_memory_bytes(const std::filesystem::path& proc = "/proc",
                               const std::filesystem::path& cgroup = "/sys/fs/cgroup");

}  // namespace coprime
