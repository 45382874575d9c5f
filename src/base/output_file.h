// A file that is written whole or not at all: beside its place first, then renamed into it, so that what was there
// stays until there is something better.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace coprime {

// Error(kModel) when no file can be written there, as far as can be told before there is anything to write: there is no
// such folder, or it may not be written to, or the name is that of a device, a link or a folder.
void check_output(const std::filesystem::path& path);

// The parts, one behind the other. Error(kModel) as above, and when the disk is full; nothing is left behind then.
void write_output(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);

}  // namespace coprime
