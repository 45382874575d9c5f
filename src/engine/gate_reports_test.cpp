#include "engine/gate_reports.h"

#include <gtest/gtest.h>

#include "gate/constants.h"

namespace coprime {
namespace {

const GateEntry kAttention{GateKind::kAttention, 0, 64, 1}, kFfn{GateKind::kFfn, 5, 64, 1};

void exchange(GateProfile& profile, const GateEntry& gate, int64_t publish_ns, int64_t wait_ns) {
  profile.phase_ended(gate, {.phase = GatePhase::kPublish, .begin_ns = 1000, .end_ns = 1000 + publish_ns});
  profile.phase_ended(gate, {.phase = GatePhase::kWait, .begin_ns = 5000, .end_ns = 5000 + wait_ns});
  profile.phase_ended(gate, {.phase = GatePhase::kFold, .begin_ns = 0, .end_ns = 999'999});
}

TEST(GateProfile, tells_each_kinds_means_every_430_samples) {
  GateProfile profile;
  for (int i = 0; i < kProfileSamples - 1; ++i) {
    exchange(profile, kAttention, 500, i % 2 == 0 ? 1000 : 3000);
    exchange(profile, kFfn, 1'000'000, 0);
  }
  EXPECT_TRUE(profile.take_lines().empty());
  exchange(profile, kAttention, 500, 3000);
  EXPECT_EQ(profile.take_lines(),
            (std::vector<std::string>{"gate profile: ATTN: mean post 0.50 us, peer wait 2.00 us, of 430 exchanges"}));
  EXPECT_TRUE(profile.take_lines().empty());
  exchange(profile, kFfn, 1'000'000, 0);
  for (int i = 0; i < kProfileSamples; ++i) exchange(profile, kAttention, 1500, 2000);
  EXPECT_EQ(profile.take_lines(),
            (std::vector<std::string>{"gate profile: FFN: mean post 1000.00 us, peer wait 0.00 us, of 430 exchanges",
                                      "gate profile: ATTN: mean post 1.00 us, peer wait 2.00 us, of 860 exchanges"}));
}

TEST(GateTrace, tells_layer_gate_slot_and_sequence_at_once) {
  std::vector<std::string> lines;
  GateTrace trace([&](const std::string& line) { lines.push_back(line); });
  trace.gate_asked(kFfn, 12, 1234);
  EXPECT_EQ(lines, (std::vector<std::string>{"gate trace: layer 5 gate FFN, slot 12, sequence 1234"}));
}

}  // namespace
}  // namespace coprime
