// What a command writes: its text on standard output, and its files.
#pragma once

#include <filesystem>
#include <functional>
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

// An earlier file of the same kind is replaced, and an empty one; anything else that stands there is somebody's. what:
// "op_log". is_one: whether the file is of that kind. Error(kUsage) naming flag and file.
void check_replaces(const std::string& flag, const std::filesystem::path& path, std::string_view what,
                    const std::function<bool(const std::filesystem::path&)>& is_one);

}  // namespace coprime
