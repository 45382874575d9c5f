// What follows from the figures of `coprime link`.
#include <algorithm>

#include "tools/link.h"
#include "tools/link_words.h"

namespace coprime {
namespace {

constexpr double kLowDuplex = 0.6;   // below it, moving both ways at once gains little
constexpr double kSlowPair = 2;      // times the median pair
constexpr double kLongTail = 20;     // p99 over p50
constexpr double kFarFromFloor = 2;  // p50 over the bare exchange

// By size, the faster of the two ways; neighbours with the same answer become one line.
void advise_exchange(const LinkFigures& figures, std::vector<std::string>& lines) {
  if (figures.ranks < 3) {
    lines.push_back("two ranks: push to the peer at every size; sums by owners need three ranks to save anything");
    return;
  }
  struct Range {
    int64_t first, last;
    bool push;
    double gain;  // at the last size
  };
  std::vector<Range> ranges;
  for (const GateFigures& gate : figures.gate) {
    const bool push = gate.gate.p50 <= gate.owners.p50;
    const double slower = std::max(gate.gate.p50, gate.owners.p50), faster = std::min(gate.gate.p50, gate.owners.p50);
    if (ranges.empty() || ranges.back().push != push) ranges.push_back({gate.bytes, gate.bytes, push, 0});
    ranges.back().last = gate.bytes;
    ranges.back().gain = faster > 0 ? slower / faster : 1;
  }
  for (const Range& range : ranges) {
    const std::string sizes = range.first == range.last
                                  ? bytes_text(range.first)
                                  : fmt::format("{} to {}", bytes_text(range.first), bytes_text(range.last));
    lines.push_back(range.push ? fmt::format("{}: push to all ({:.2f} times as fast as sums by owners at {})", sizes,
                                             range.gain, bytes_text(range.last))
                               : fmt::format("{}: sums by owners ({:.2f} times as fast as pushing to all at {})", sizes,
                                             range.gain, bytes_text(range.last)));
  }
}

void advise_pairs(const LinkFigures& figures, std::vector<std::string>& lines) {
  const int64_t bytes = latency_size(figures.options.sizes), largest = bandwidth_size(figures.options.sizes);
  std::vector<double> times;
  for (const PairFigures& pair : figures.pairs) {
    if (pair.bytes == bytes) times.push_back(pair.round_trip.p50);
  }
  std::ranges::sort(times);
  for (const PairFigures& pair : figures.pairs) {
    if (pair.from > pair.to) continue;
    if (pair.bytes == bytes && pair.round_trip.p50 > kSlowPair * times[times.size() / 2]) {
      lines.push_back(
          fmt::format("ranks {} and {} take {:.1f} us there and back, the median pair {:.1f}: a gate is as slow as its "
                      "slowest pair; look at what joins them ({})",
                      pair.from, pair.to, pair.round_trip.p50, times[times.size() / 2], pair.link));
    }
    if (pair.bytes == largest && pair.duplex_efficiency < kLowDuplex) {
      lines.push_back(
          fmt::format("ranks {} and {}: both ways at once reach {:.0f}% of the two ways alone: large exchanges between "
                      "them are bound by the sum of both directions (shared memory, or a link of half duplex)",
                      pair.from, pair.to, 100 * pair.duplex_efficiency));
    }
  }
}

void advise_gates(const LinkFigures& figures, std::vector<std::string>& lines) {
  double longest_us = 0;
  for (const GateFigures& gate : figures.gate) longest_us = std::max(longest_us, gate.gate.max);
  bool crowded = false;
  for (const LinkHost& host : figures.hosts) {
    const int ranks = static_cast<int>(host.ranks.size());
    if (ranks <= host.cores) continue;
    crowded = true;
    lines.push_back(
        fmt::format("{} ranks share {} core{} of {}: waits yield and sleep, and a gate costs the scheduler's time; as "
                    "many ranks as cores wait in a spin",
                    ranks, host.cores, host.cores == 1 ? "" : "s", host.name));
  }
  if (!crowded) {
    for (const GateFigures& gate : figures.gate) {
      if (gate.bytes != latency_size(figures.options.sizes)) continue;
      if (gate.gate.p99 > kLongTail * gate.gate.p50) {
        lines.push_back(
            fmt::format("one gate of {} in a hundred takes {:.0f} us, the median {:.1f}: other programs take the "
                        "ranks' cores, or the link loses packets",
                        bytes_text(gate.bytes), gate.gate.p99, gate.gate.p50));
      }
      if (gate.floor_p50_us && gate.gate.p50 > kFarFromFloor * *gate.floor_p50_us) {
        lines.push_back(
            fmt::format("a gate of {} takes {:.1f} times the bare exchange of this run: measure again on "
                        "idle cores before you believe the rest",
                        bytes_text(gate.bytes), gate.gate.p50 / *gate.floor_p50_us));
      }
    }
  }
  const double slack = longest_us / 1000 * 4;
  if (slack > figures.timeout_ms) {
    lines.push_back(fmt::format("the longest gate took {:.0f} ms: set --gate-timeout-ms to {:.0f} or more",
                                longest_us / 1000, slack));
  }
}

}  // namespace

std::vector<std::string> link_advice(const LinkFigures& figures) {
  std::vector<std::string> lines;
  if (figures.wrong > 0) {
    lines.push_back(
        fmt::format("{} of {} vectors came out wrong: this link changes bytes; use no engine over it (--wire-auth "
                    "turns such a change into an error)",
                    figures.wrong, figures.transfers));
  }
  if (figures.timeouts + figures.bail_outs > 0)
    lines.push_back("some transfers did not end: the figures are of the others; see the failures above");
  if (!figures.gate.empty()) advise_exchange(figures, lines);
  advise_pairs(figures, lines);
  advise_gates(figures, lines);
  return lines;
}

}  // namespace coprime
