#include "sim/loop_history.h"

namespace coprime::sim {
namespace {

// Whether the time moved with the clock, or had passed both times.
bool moves(Tick now, Tick before, const Snapshot& a, const Snapshot& b) {
  return now - a.cpu.time == before - b.cpu.time || (now <= a.now && before <= b.now);
}

}  // namespace

size_t LoopHistory::period(size_t turns) {
  for (size_t period = turns; period <= kLongest && 2 * period < count_; period += turns) {
    if (repeats(at(0), at(period), at(2 * period))) return period;
  }
  return 0;
}

bool LoopHistory::repeats(Snapshot& now, Snapshot& before, Snapshot& long_before) const {
  if (now.numbers != before.numbers || before.numbers != long_before.numbers) return false;
  if (now.moments.size() != before.moments.size() || before.moments.size() != long_before.moments.size()) return false;
  if (now.cpu.time - before.cpu.time != before.cpu.time - long_before.cpu.time) return false;
  for (size_t i = 0; i < now.ticks.size(); ++i) {
    if (!moves(now.ticks[i], before.ticks[i], now, before)) return false;
    if (!moves(before.ticks[i], long_before.ticks[i], before, long_before)) return false;
  }
  for (size_t i = 0; i < now.moments.size(); ++i) {
    const Moment &a = now.moments[i], &b = before.moments[i], &c = long_before.moments[i];
    if (!moves(a.time, b.time, now, before) || !moves(b.time, c.time, before, long_before)) return false;
    if (a.time - b.time != b.time - c.time) continue;  // has passed
    for (size_t part = 0; part < kParts; ++part) {
      if (a.by[part] - b.by[part] != b.by[part] - c.by[part]) return false;
    }
  }
  return true;
}

}  // namespace coprime::sim
