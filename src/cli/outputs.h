// The files that a command writes.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string>

namespace coprime {

// Before anything is started: whether `flag`'s file can be written, and is none of those that this run reads (a file,
// or a folder with a model in it). Error(kUsage) or Error(kModel) naming the flag.
void check_output_flag(const std::string& flag, const std::filesystem::path& path,
                       std::initializer_list<std::filesystem::path> inputs);

}  // namespace coprime
