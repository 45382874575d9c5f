// What a command writes: its text on standard output, and its files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace coprime {

// On standard output, at once. Error(kInternal) when it takes less than all.
void print(std::string_view text);

// Before anything is started: whether `flag`'s file can be written, and is none of those that this run reads (a file,
// or a folder with a model in it). Error(kUsage) or Error(kModel) naming the flag.
void check_output_flag(const std::string& flag, const std::filesystem::path& path,
                       const std::vector<std::filesystem::path>& inputs);

}  // namespace coprime
