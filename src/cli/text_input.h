// Text that a command reads from a file or standard input.
#pragma once

#include <fstream>
#include <functional>
#include <string>

namespace coprime {

// More than any context holds.
constexpr size_t kMaxPromptBytes = 64 << 20;

// The whole of it; "-" is standard input. Error(kModel) for what cannot be read, Error(kUsage) for more than
// kMaxPromptBytes.
std::string read_text_input(const std::string& path);

// Line by line, with its number from 1. Error(kModel) for what cannot be read, or a line of more than 64 MiB.
void each_line(const std::string& path, const std::function<void(const std::string& line, size_t number)>& use);

}  // namespace coprime
