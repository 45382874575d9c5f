// One line on a terminal that is written over itself, and gone when it is no longer needed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace coprime {

class ProgressLine {
 public:
  using Write = std::function<void(const std::string&)>;  // takes text for the terminal; empty: nobody looks

  explicit ProgressLine(Write write) : write_(std::move(write)) {}
  ProgressLine(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  // Nothing sooner than a fifth of a second after the last.
  void show(const std::string& text, int64_t time_us);
  void clear();

 private:
  Write write_;
  int64_t shown_us_ = 0;
  bool shown_ = false;
};

// Of standard error; empty where it is no terminal.
ProgressLine::Write terminal_write();

// Of work that is counted in bytes: "37 %".
void show_percent(ProgressLine& line, uint64_t done, uint64_t total);

}  // namespace coprime
