#include "sim/op_log_trace.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/input_file.h"
#include "base/output_file.h"
#include "sim/op_log_file.h"
#include "trace/perfetto_trace.h"

namespace coprime::sim {
namespace {

constexpr std::array<std::string_view, 6> kEngines = {"SCHEDULER", "DMA", "GEMM", "MATH", "SEND", "RECV"};

size_t engine_index(OpKind kind) {
  return static_cast<size_t>(std::ranges::find(kEngines, engine_of(kind)) - kEngines.begin());
}

// The tracks of all engines, made when their first slice comes; PEs come in order.
class Tracks {
 public:
  Tracks(PerfettoTrace& trace, const Chip& chip) : trace_(trace), chip_(chip) {}

  PerfettoTrace::Track lane(uint32_t pe, size_t engine, size_t lane) {
    const auto [entry, added] = lanes_.try_emplace({pe, engine, lane});
    if (added) entry->second = trace_.add_track(kEngines[engine], pe_track(pe));
    return entry->second;
  }

 private:
  PerfettoTrace::Track pe_track(uint32_t pe) {
    const auto pes = static_cast<uint32_t>(chip_.pes);
    const auto cubes = static_cast<uint32_t>(chip_.cube_rows * chip_.cube_columns);
    const uint32_t cube = pe / pes, sip = cube / cubes;
    const auto sip_track = named(fmt::format("SIP {}", sip), PerfettoTrace::kNoTrack);
    const auto cube_track = named(fmt::format("CUBE {}", cube % cubes), sip_track);
    return named(fmt::format("PE {}", pe % pes), cube_track);
  }
  PerfettoTrace::Track named(const std::string& name, PerfettoTrace::Track parent) {
    const auto [entry, added] = groups_.try_emplace({parent, name});
    if (added) entry->second = trace_.add_track(name, parent);
    return entry->second;
  }

  PerfettoTrace& trace_;
  const Chip& chip_;
  std::map<std::array<size_t, 3>, PerfettoTrace::Track> lanes_;
  std::map<std::pair<PerfettoTrace::Track, std::string>, PerfettoTrace::Track> groups_;
};

}  // namespace

void write_op_log_trace(const std::filesystem::path& path, const Chip& chip, const OpLog& log) {
  std::vector<uint32_t> order(log.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto engine = [&](uint32_t row) { return engine_index(log.kind[row]); };
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return std::tuple(log.pe[a], engine(a), log.start[a], log.op[a]) <
           std::tuple(log.pe[b], engine(b), log.start[b], log.op[b]);
  });
  std::vector<uint32_t> sends;  // operation numbers
  for (size_t i = 0; i < log.size(); ++i)
    if (log.kind[i] == OpKind::kSend) sends.push_back(log.op[i]);
  std::ranges::sort(sends);

  OutputFile file(path);
  std::string buffer;
  const auto flush = [&] {
    file.write(std::as_bytes(std::span(buffer)));
    buffer.clear();
  };
  PerfettoTrace trace([&](std::string_view bytes) {
    buffer += bytes;
    if (buffer.size() >= 1 << 20) flush();
  });
  Tracks tracks(trace, chip);
  std::vector<Tick> lane_ends;  // of this PE's engine
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t row = order[i];
    if (i == 0 || log.pe[row] != log.pe[order[i - 1]] || engine(row) != engine(order[i - 1])) lane_ends.clear();
    const auto free = std::ranges::find_if(lane_ends, [&](Tick end) { return end <= log.start[row]; });
    const auto lane = static_cast<size_t>(free - lane_ends.begin());
    if (free == lane_ends.end()) lane_ends.push_back(0);
    lane_ends[lane] = log.end[row];

    const PerfettoTrace::Argument arguments[] = {{"op", log.op[row]},
                                                 {"start_ps", static_cast<int64_t>(log.start[row])},
                                                 {"duration_ps", static_cast<int64_t>(log.end[row] - log.start[row])},
                                                 {"bytes", static_cast<int64_t>(log.bytes[row])},
                                                 {"macs", static_cast<int64_t>(log.macs[row])},
                                                 {"line", log.line[row]},
                                                 {"waited_for", log.cause_op[row]}};
    const uint64_t own[] = {log.op[row]}, other[] = {log.cause_op[row]};
    const bool sends_on = log.kind[row] == OpKind::kSend;
    const bool receives = log.kind[row] == OpKind::kRecv && std::ranges::binary_search(sends, log.cause_op[row]);
    trace.add({.track = tracks.lane(log.pe[row], engine(row), lane),
               .name = name_of(log.kind[row]),
               .category = name_of(log.cause[row]),
               .begin_ns = log.start[row] / 1000,
               .end_ns = log.end[row] / 1000,
               .arguments = arguments,
               .begins_flows = sends_on ? std::span<const uint64_t>(own) : std::span<const uint64_t>(),
               .ends_flows = receives ? std::span<const uint64_t>(other) : std::span<const uint64_t>()});
  }
  flush();
  file.finish();
}

bool is_op_log_trace(const std::filesystem::path& path) {
  // A packet (of one byte of length), in it a track descriptor, in that the number 1 and a name.
  constexpr std::string_view kBegin = "\x0a_\xe2\x03_\x08\x01\x12_SIP ";
  const InputFile file = InputFile::open(path);
  std::array<std::byte, kBegin.size()> bytes{};
  if (file.bytes() < bytes.size()) return false;
  file.read(0, bytes);
  for (size_t i = 0; i < bytes.size(); ++i)
    if (kBegin[i] != '_' && std::byte(kBegin[i]) != bytes[i]) return false;
  return true;
}

}  // namespace coprime::sim
