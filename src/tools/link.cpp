#include "tools/link.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/percentile.h"

namespace coprime {
namespace {

constexpr int64_t kRepeatedBytes = 64 * 1024;
constexpr int kFewestRepeats = 5;

LinkTrial trial_of(const MeasureOptions& options, LinkTrial::Kind kind, int64_t bytes, std::vector<int> members) {
  int64_t repeat = options.repeat;
  if (bytes > kRepeatedBytes) repeat = std::clamp<int64_t>(repeat * kRepeatedBytes / bytes, kFewestRepeats, repeat);
  return {.kind = kind,
          .bytes = bytes,
          .repeat = static_cast<int>(repeat),
          .seed = static_cast<uint32_t>(bytes),
          .members = std::move(members)};
}

double median(const std::vector<int64_t>& values) { return figures_of(values).p50 * 1000; }

// By repetition, the longest of any rank.
std::vector<int64_t> longest(const std::vector<TrialReport>& reports, std::vector<int64_t> LinkTimes::*times) {
  std::vector<int64_t> all = reports[0].times.*times;
  for (const TrialReport& report : reports) {
    const std::vector<int64_t>& own = report.times.*times;
    for (size_t i = 0; i < std::min(all.size(), own.size()); ++i) all[i] = std::max(all[i], own[i]);
  }
  return all;
}

std::vector<int64_t> between(const std::vector<int64_t>& begins, const std::vector<int64_t>& ends) {
  std::vector<int64_t> times;
  for (size_t i = 0; i < std::min(begins.size(), ends.size()); ++i) times.push_back(ends[i] - begins[i]);
  return times;
}

// Counts what the reports say of the trial; whether all went through.
bool count(const std::vector<TrialReport>& reports, const std::string& doing, LinkFigures& figures) {
  bool good = true;
  for (const TrialReport& report : reports) {
    figures.transfers += report.transfers;
    figures.wrong += report.wrong;
    if (report.failure.empty()) continue;
    ++(report.timed_out ? figures.timeouts : figures.bail_outs);
    figures.failures.push_back(fmt::format("{}: {}", doing, report.failure));
    good = false;
  }
  return good;
}

void add_pair(const std::vector<TrialReport>& reports, int first, int second, int64_t bytes, bool one_clock,
              LinkFigures& figures) {
  const LinkTimes &of_first = reports[0].times, &of_second = reports[1].times;
  const Figures round_trip = figures_of(of_first.round_trip);
  const Figures half{round_trip.p50 / 2, round_trip.p99 / 2, round_trip.max / 2};
  const double streamed = static_cast<double>(kStreamPushes * bytes);
  const double forth = streamed / median(longest(reports, &LinkTimes::stream_first));
  const double back = streamed / median(longest(reports, &LinkTimes::stream_second));
  const double duplex = 2 * streamed / median(longest(reports, &LinkTimes::stream_both)) / (forth + back);
  const auto add = [&](int from, int to, const Figures& one_way, double gb_s) {
    figures.pairs.push_back({from, to, bytes, one_clock, reports[0].link, one_way, round_trip, gb_s, duplex});
  };
  add(first, second, one_clock ? figures_of(between(of_first.first_begin, of_second.first_end)) : half, forth);
  add(second, first, one_clock ? figures_of(between(of_second.second_begin, of_first.second_end)) : half, back);
}

bool on_one_host(const std::vector<LinkHost>& hosts, int a, int b) {
  return std::ranges::any_of(hosts, [&](const LinkHost& host) {
    return std::ranges::find(host.ranks, a) != host.ranks.end() && std::ranges::find(host.ranks, b) != host.ranks.end();
  });
}

}  // namespace

std::vector<int64_t> default_link_sizes() {
  constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
  return {4 * kKiB, 8 * kKiB, 16 * kKiB, 24 * kKiB, 48 * kKiB, 64 * kKiB, kMiB, 16 * kMiB};
}

Figures figures_of(const std::vector<int64_t>& nanoseconds) {
  const auto at = [&](double share) { return static_cast<double>(percentile(nanoseconds, share)) / 1000; };
  return {at(0.5), at(0.99), at(1)};
}

LinkFigures measure_links(LinkWorld& world, const MeasureOptions& options) {
  LinkFigures figures{
      .ranks = world.ranks(), .timeout_ms = world.timeout_ms(), .hosts = world.hosts(), .options = options};
  std::map<int, std::string> lost;  // ranks that something was left out for, and why
  const auto all_answer = [&](const std::vector<int>& members) {
    bool all = true;
    for (const int rank : members) {
      std::string why = world.loss(rank);
      if (why.empty()) continue;
      lost.try_emplace(rank, std::move(why));
      all = false;
    }
    return all;
  };
  std::vector<int> all;
  for (int first = 0; first < world.ranks(); ++first) {
    all.push_back(first);
    for (int second = first + 1; second < world.ranks(); ++second) {
      const std::vector<int> members{first, second};
      for (const int64_t bytes : options.sizes) {
        if (!all_answer(members)) continue;
        const auto reports = world.run(trial_of(options, LinkTrial::Kind::kPair, bytes, members));
        if (count(reports, fmt::format("ranks {} and {}, {} bytes", first, second, bytes), figures))
          add_pair(reports, first, second, bytes, on_one_host(figures.hosts, first, second), figures);
      }
    }
  }
  for (const int64_t bytes : options.sizes) {
    if (!all_answer(all)) continue;
    const auto reports = world.run(trial_of(options, LinkTrial::Kind::kGate, bytes, all));
    if (!count(reports, fmt::format("gate of {} ranks, {} bytes", world.ranks(), bytes), figures)) continue;
    GateFigures gate{.ranks = world.ranks(), .bytes = bytes};
    gate.gate = figures_of(longest(reports, &LinkTimes::gate));
    gate.owners = figures_of(longest(reports, &LinkTimes::owners));
    const std::vector<int64_t> bare = longest(reports, &LinkTimes::bare);
    if (!bare.empty()) gate.floor_p50_us = figures_of(bare).p50;
    figures.gate.push_back(gate);
  }
  for (const auto& [rank, why] : lost)
    figures.failures.push_back(fmt::format("all that rank {} was still to take part in was left out: {}", rank, why));
  figures.notes = world.notes();
  return figures;
}

TokenCost token_cost(const LinkFigures& figures, const GateSchedule& schedule) {
  TokenCost cost;
  for (const GateEntry& entry : schedule) {
    const auto measured = std::ranges::find(figures.gate, entry.row_bytes, &GateFigures::bytes);
    if (measured == figures.gate.end()) {
      fail(ErrorKind::kUsage, "{} moves {} bytes, which were not measured: add them to --sizes", gate_text(entry),
           entry.row_bytes);
    }
    ++cost.gates;
    cost.gate_ms += measured->gate.p50 / 1000;
  }
  return cost;
}

}  // namespace coprime
