// What --gate-profile and --gate-trace tell about a rank's gates, as lines of text.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "collective/gate_observer.h"

namespace coprime {

// For each kind of gate a line after every kProfileSamples exchanges of that kind: the mean times since the start to
// publish and to wait for the peers. A sum by owners counts twice, as the two exchanges that it is.
class GateProfile final : public GateObserver {
 public:
  void phase_ended(const GateEntry& gate, const GateMoment& moment) override;
  std::vector<std::string> take_lines();  // those that fell due since the last call

 private:
  struct Sums {
    int64_t publish_ns = 0, wait_ns = 0, samples = 0;
  };
  std::array<Sums, kGateKinds> sums_;
  std::vector<std::string> lines_;
};

// A line for every gate before its order is checked. `tell` gets it at once, since the check may end the rank.
class GateTrace final : public GateObserver {
 public:
  explicit GateTrace(std::function<void(const std::string&)> tell) : tell_(std::move(tell)) {}
  void gate_asked(const GateEntry& gate, int entry, uint64_t sequence) override;

 private:
  std::function<void(const std::string&)> tell_;
};

}  // namespace coprime
