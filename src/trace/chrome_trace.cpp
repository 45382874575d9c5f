#include "trace/chrome_trace.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace coprime {
namespace {

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// 1234567 ns are 1234.567 µs: exactly, as no double would print it.
std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string arguments_json(const std::vector<TraceArgument>& arguments) {
  std::string text;
  for (const auto& [name, value] : arguments) {
    const auto* number = std::get_if<int64_t>(&value);
    text += fmt::format("{}{}:{}", text.empty() ? "" : ",", json_string(name),
                        number != nullptr ? std::to_string(*number) : json_string(std::get<std::string>(value)));
  }
  return text;
}

}  // namespace

void ChromeTrace::name_track(int track, std::string_view name) { tracks_.emplace_back(track, name); }

void ChromeTrace::add(TraceSlice slice) {
  COPRIME_CHECK(slice.begin_ns <= slice.end_ns, "{} from {} to {}", slice.name, slice.begin_ns, slice.end_ns);
  slices_.push_back(std::move(slice));
}

void ChromeTrace::note(std::string_view name, std::string_view text) { notes_.emplace_back(name, text); }

std::string ChromeTrace::json() const {
  int64_t origin_ns = std::numeric_limits<int64_t>::max();
  for (const TraceSlice& slice : slices_) origin_ns = std::min(origin_ns, slice.begin_ns);

  std::string text = "{\"displayTimeUnit\":\"ns\",\"otherData\":{";
  for (size_t i = 0; i < notes_.size(); ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ",", json_string(notes_[i].first), json_string(notes_[i].second));
  }
  text += "},\"traceEvents\":[";
  const char* separator = "\n";
  for (const auto& [track, name] : tracks_) {
    text += fmt::format(R"({}{{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})",
                        std::exchange(separator, ",\n"), track, json_string(name));
    text += fmt::format(R"({}{{"ph":"M","pid":1,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})",
                        separator, track, track);
  }
  for (const TraceSlice& slice : slices_) {
    text += fmt::format(R"({}{{"ph":"X","pid":1,"tid":{},"name":{},"cat":{},"ts":{},"dur":{},"args":{{{}}}}})",
                        std::exchange(separator, ",\n"), slice.track, json_string(slice.name),
                        json_string(slice.category), microseconds(slice.begin_ns - origin_ns),
                        microseconds(slice.end_ns - slice.begin_ns), arguments_json(slice.arguments));
  }
  return text + "\n]}\n";
}

}  // namespace coprime
