// A text's lines, of bounded length.
#pragma once

#include <cstddef>
#include <functional>
#include <istream>
#include <string>

namespace coprime {

constexpr size_t kMaxLineBytes = 64 << 20;

struct Line {
  std::string text;    // without its end
  size_t number = 1;   // from 1
  bool ended = false;  // by a line's end; the last may not be
};

// Each line, until `use` gives false. Error(kModel) with `name` and the line for one of more than kMaxLineBytes, and
// for a read that fails.
void read_lines(std::istream& from, const std::string& name, const std::function<bool(const Line&)>& use);

}  // namespace coprime
