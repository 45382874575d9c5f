// A line on a terminal while simulations take long: "run 3 of 20, 12 s" or "1234.5 us simulated, 42 M events, 12 s".
// Nothing of what is soon over.
#pragma once

#include "cli/progress_line.h"

namespace coprime {

class SimProgress {
 public:
  // `begin_us`: when the first run begins.
  SimProgress(ProgressLine::Write write, int64_t begin_us) : line_(std::move(write)), begin_us_(begin_us) {}

  // Within run number `run` (from 0) of so many.
  void within_runs(size_t run, size_t runs, int64_t time_us);
  // Within the only run, or one of an unknown number: at that simulated time, after so many events.
  void within_run(double simulated_us, uint64_t events, int64_t time_us);
  void clear() { line_.clear(); }

 private:
  void show(const std::string& text, int64_t time_us);

  ProgressLine line_;
  int64_t begin_us_;
};

}  // namespace coprime
