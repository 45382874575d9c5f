// Every order of events in small worlds (model_world.h): no message meets an unposted receive, no gate is done with
// wrong content, nothing deadlocks, everything drains; and a message that is taken away at any point ends in a fault or
// in a wait that never ends, which is what deadlines are for. Worlds with one rule of the protocol taken out show that
// the search finds what the rule is for.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "gate/model_world.h"

namespace coprime {
namespace {

using testing::Model;
using testing::ModelSettings;
using testing::ModelStep;
using testing::ModelWorld;

// States that were seen, by their hashes.
class SeenStates {
 public:
  bool insert(uint64_t hash) {
    if (hash == 0) hash = 1;
    if (2 * (count_ + 1) > table_.size()) grow();
    return place(hash);
  }
  size_t count() const { return count_; }

 private:
  bool place(uint64_t hash) {
    size_t at = hash & (table_.size() - 1);
    for (; table_[at] != 0; at = (at + 1) & (table_.size() - 1))
      if (table_[at] == hash) return false;
    table_[at] = hash;
    ++count_;
    return true;
  }
  void grow() {
    std::vector<uint64_t> old(2 * table_.size());
    old.swap(table_);
    count_ = 0;
    for (const uint64_t hash : old)
      if (hash != 0) place(hash);
  }

  std::vector<uint64_t> table_ = std::vector<uint64_t>(1 << 12);
  size_t count_ = 0;
};

constexpr size_t kMostStates = 2'000'000;

struct Outcome {
  std::string violation;  // of the first world that broke an invariant
  size_t states = 0, faults = 0, stuck = 0, finished = 0;
  uint64_t rearms = 0;
};

template <int kRanks, size_t kQueue>
Outcome explore(const ModelSettings& settings) {
  using World = ModelWorld<kRanks, kQueue>;
  const Model<World, kRanks> model(settings);
  const auto hash = [](const World& world) {
    return hash_bytes({reinterpret_cast<const std::byte*>(&world), sizeof world});
  };
  Outcome outcome;
  SeenStates seen;
  std::vector<World> open;
  open.push_back(model.start());
  seen.insert(hash(open.back()));
  while (!open.empty() && outcome.violation.empty() && seen.count() <= kMostStates) {
    const World world = open.back();
    open.pop_back();
    const auto events = model.events(world);
    if (events.empty()) {
      outcome.violation = model.check_end(world);
      ++(world.lost != 0 ? outcome.stuck : outcome.finished);
      outcome.rearms = std::max(outcome.rearms, world.ranks[0].ends[1].machine.rearms());
    }
    for (const auto& event : events) {
      open.push_back(world);
      outcome.violation = model.apply(open.back(), event);
      if (!outcome.violation.empty()) break;
      const bool fault = model.any_fault(open.back());
      if (fault) ++outcome.faults;
      if (fault || !seen.insert(hash(open.back()))) open.pop_back();
    }
  }
  outcome.states = seen.count();
  if (outcome.states > kMostStates) outcome.violation = "too many states to try them all";
  std::printf("%zu states, %zu finished, %zu stuck, %zu faults, %lu rearms %s\n", outcome.states, outcome.finished,
              outcome.stuck, outcome.faults, static_cast<unsigned long>(outcome.rearms), outcome.violation.c_str());
  return outcome;
}

constexpr RowClass kOne = RowClass::kOne, kEight = RowClass::kUpTo8, kMany = RowClass::kUpTo32, kBulk = RowClass::kBulk;

// One row is one chunk of 4 bytes at most, 8 rows two, 9 rows three. Two gates of the last fit the depth, but not
// `lookahead` of them: they go by a verify window.
WindowPlan small_plan(int entries, int lookahead, bool tags) {
  GateSchedule schedule;
  for (int i = 0; i < entries; ++i) schedule.push_back({GateKind::kFfn, i, 1, 9});
  const QueuePairLimits limits{.max_message_bytes = 4,
                               .send_depth = 16,
                               .receive_depth = std::max(6, 2 * lookahead),
                               .loses_unposted = true,
                               .carries_tags = tags};
  return WindowPlan(schedule, limits, lookahead);
}

TEST(PairExploration, PlanOfTheSmallWorlds) {
  const WindowPlan plan = small_plan(2, 3, true);
  EXPECT_EQ(plan.service(kOne), Service::kDecodeWindow);
  EXPECT_EQ(plan.service(kEight), Service::kDecodeWindow);
  EXPECT_EQ(plan.service(kMany), Service::kVerifyWindow);
  EXPECT_EQ(plan.gate(0, kMany).chunks, 3);
}

TEST(PairExploration, TwoRanksDecode) {
  for (const int lookahead : {2, 3, 4}) {
    for (const bool early : {false, true}) {
      const WindowPlan plan = small_plan(3, lookahead, false);
      const Outcome outcome = explore<2, 16>({.plan = &plan,
                                              .steps = {{kOne, kOne}, {kOne, kEight}, {kEight, kBulk}},
                                              .bulk_bytes = {4, 7},
                                              .early_send_completions = early});
      EXPECT_EQ(outcome.violation, "");
      EXPECT_GT(outcome.finished, 0u);
    }
  }
}

}  // namespace
}  // namespace coprime
