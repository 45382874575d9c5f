// A trace in Perfetto's own form (TrackEvent protobuf), which ui.perfetto.dev opens: tracks in a tree, slices of time
// with arguments, and flows, the arrows from what sent to what received. Written as it comes, by hand: the wire format
// needs a page. Slices of one track come in the order of their begin, and do not overlap.
//
// Names are sent once and then referred to by number; one sequence of packets, so a reader that loses none knows all.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace coprime {

class PerfettoTrace {
 public:
  using Track = uint64_t;
  static constexpr Track kNoTrack = 0;
  using Sink = std::function<void(std::string_view bytes)>;  // in order; the file is what it was given
  using Argument = std::pair<std::string_view, int64_t>;

  struct Slice {
    Track track = kNoTrack;
    std::string_view name, category;
    uint64_t begin_ns = 0, end_ns = 0;  // begin_ns <= end_ns
    std::span<const Argument> arguments;
    std::span<const uint64_t> begins_flows, ends_flows;  // numbers of the caller's, each ended at most once
  };

  explicit PerfettoTrace(Sink sink) : sink_(std::move(sink)) {}

  Track add_track(std::string_view name, Track parent = kNoTrack);  // siblings stand in the order of their calls
  void add(const Slice& slice);

 private:
  enum class Table : uint8_t { kCategory, kName, kArgument };
  uint64_t intern(Table table, std::string_view text);
  void packet(std::string_view body);

  Sink sink_;
  Track tracks_ = 0;
  bool begun_ = false;
  std::unordered_map<std::string, uint64_t> interned_[3];
  std::string fresh_;  // InternedData for the packet in the making
};

}  // namespace coprime
