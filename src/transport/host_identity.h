// Which processes can share memory by way of a Unix socket: those that run under one kernel and in one network
// namespace, where abstract socket names live.
#pragma once

#include <filesystem>
#include <string>

namespace coprime {

// "<boot id>/<network namespace>": equal for two processes exactly when they can reach each other so. Unique (and equal
// to none) where the system tells nothing. The root is a parameter for tests.
std::string host_identity(const std::filesystem::path& proc = "/proc");

}  // namespace coprime
