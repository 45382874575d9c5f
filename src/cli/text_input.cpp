#include "cli/text_input.h"

#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "base/lines.h"

namespace coprime {
namespace {

std::istream& open_input(const std::string& path, std::ifstream* file) {
  if (path == "-") return std::cin;
  file->open(path, std::ios::binary);
  if (!*file || std::filesystem::is_directory(path))
    fail(ErrorKind::kModel, "{}: cannot be read: give a text file", path);
  return *file;
}

std::string name_of(const std::string& path) { return path == "-" ? "standard input" : path; }

}  // namespace

std::string read_text_input(const std::string& path) {
  std::ifstream file;
  std::istream& from = open_input(path, &file);
  std::string text(kMaxPromptBytes, 0);
  from.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(from.gcount()));
  if (text.size() == kMaxPromptBytes)
    fail(ErrorKind::kUsage, "{}: more than {} MiB of text: give a shorter prompt", name_of(path),
         kMaxPromptBytes >> 20);
  return text;
}

void each_line(const std::string& path, const std::function<void(const std::string& line, size_t number)>& use) {
  std::ifstream file;
  std::istream& from = open_input(path, &file);
  read_lines(from, name_of(path), [&](const Line& line) {
    use(line.text, line.number);
    return true;
  });
}

}  // namespace coprime
