#include "engine/gate_reports.h"

#include <fmt/format.h>

#include <utility>

#include "gate/constants.h"

namespace coprime {

void GateProfile::phase_ended(const GateEntry& gate, const GateMoment& moment) {
  Sums& sums = sums_[static_cast<size_t>(gate.kind)];
  const int64_t ns = moment.end_ns - moment.begin_ns;
  if (moment.phase == GatePhase::kPublish) sums.publish_ns += ns;
  if (moment.phase != GatePhase::kWait) return;
  sums.wait_ns += ns;
  if (++sums.samples % kProfileSamples != 0) return;
  const auto mean_us = [&](int64_t sum) { return static_cast<double>(sum) / static_cast<double>(sums.samples) / 1e3; };
  lines_.push_back(fmt::format("gate profile: {}: mean post {:.2f} us, peer wait {:.2f} us, of {} exchanges",
                               gate_name(gate.kind), mean_us(sums.publish_ns), mean_us(sums.wait_ns), sums.samples));
}

std::vector<std::string> GateProfile::take_lines() { return std::exchange(lines_, {}); }

void GateTrace::gate_asked(const GateEntry& gate, int entry, uint64_t sequence) {
  tell_(fmt::format("gate trace: {}, slot {}, sequence {}", gate_text(gate), entry, sequence));
}

}  // namespace coprime
