// A trace in Chrome's JSON form, which ui.perfetto.dev and chrome://tracing open: slices of time on named tracks, each
// with arguments, and notes about the whole. Slices of one track lie beside or within each other.
//
// Times in the file are microseconds since the earliest slice, to the nanosecond.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coprime {

using TraceArgument = std::pair<std::string, std::variant<int64_t, std::string>>;

struct TraceSlice {
  int track = 0;
  std::string name, category;
  int64_t begin_ns = 0, end_ns = 0;
  std::vector<TraceArgument> arguments;
};

class ChromeTrace {
 public:
  void name_track(int track, std::string_view name);  // tracks stand in the order of their numbers
  void add(TraceSlice slice);                         // begin_ns <= end_ns
  void note(std::string_view name, std::string_view text);

  std::string json() const;

 private:
  std::vector<std::pair<int, std::string>> tracks_;
  std::vector<TraceSlice> slices_;
  std::vector<std::pair<std::string, std::string>> notes_;
};

}  // namespace coprime
