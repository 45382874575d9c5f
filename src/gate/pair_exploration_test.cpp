// Every order of events in small worlds (model_world.h): no message meets an unposted receive, no gate is done with
// wrong content, nothing deadlocks, everything drains; and a message that is taken away at any point ends in a fault or
// in a wait that never ends, which is what deadlines are for. Worlds with one rule of the protocol taken out show that
// the search finds what the rule is for.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/hash.h"
#include "base/testing.h"
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
      outcome.rearms = std::max(outcome.rearms, world.end(0, 1).machine.rearms());
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
  std::printf("%d ranks: %zu states, %zu finished, %zu stuck, %zu faults\n", kRanks, outcome.states, outcome.finished,
              outcome.stuck, outcome.faults);
  return outcome;
}

template <int kRanks, size_t kQueue>
Outcome expect_sound(const ModelSettings& settings) {
  const Outcome outcome = explore<kRanks, kQueue>(settings);
  EXPECT_EQ(outcome.violation, "");
  if (!settings.may_lose) {
    EXPECT_EQ(outcome.faults, 0u);
    EXPECT_GT(outcome.finished, 0u);
  }
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

using Steps = std::vector<ModelStep>;

// Ends in bulk, so that nothing may be left over.
const Steps kDecodeSteps = {{kOne, kOne}, {kOne, kEight}, {kEight, kBulk}};
const Steps kWrongSteps = {{kOne, kEight}, {kOne, kOne}, {kEight, kOne}, {kBulk, kBulk}, {kOne, kBulk}};
const Steps kVerifySteps = {{kOne, kMany}, {kMany, kMany}, {kMany, kOne}, {kOne, kOne}, {kMany, kBulk}};
const Steps kBulkSteps = {{kOne, kOne}, {kBulk, kOne}, {kOne, kBulk}, {kBulk, kMany}, {kMany, kBulk}};

TEST(PairExploration, TwoRanksDecode) {
  for (const int lookahead : {2, 3}) {
    for (const bool early : {false, true}) {
      const WindowPlan plan = small_plan(3, lookahead, false);
      expect_sound<2, 12>({.plan = &plan, .steps = kDecodeSteps, .early_send_completions = early});
    }
  }
}

TEST(PairExploration, TwoRanksClassesAnnouncedWrongly) {
  for (const bool early : {false, true}) {
    const WindowPlan plan = small_plan(2, 3, false);
    const Outcome outcome = expect_sound<2, 12>(
        {.plan = &plan, .steps = kWrongSteps, .bulk_bytes = {3, 6}, .early_send_completions = early});
    EXPECT_EQ(outcome.rearms, 3u);
  }
}

TEST(PairExploration, TwoRanksVerify) {
  for (const bool early : {false, true}) {
    const WindowPlan plan = small_plan(2, 3, false);
    expect_sound<2, 12>({.plan = &plan, .steps = kVerifySteps, .early_send_completions = early});
  }
}

TEST(PairExploration, TwoRanksBulkBetween) {
  for (const bool early : {false, true}) {
    const WindowPlan plan = small_plan(2, 2, false);
    expect_sound<2, 12>({.plan = &plan, .steps = kBulkSteps, .bulk_bytes = {5, 0}, .early_send_completions = early});
  }
}

// Two receives at a time: bulk goes in several windows, of which the last ones are of one direction only.
TEST(PairExploration, TwoRanksBulkInManyWindows) {
  for (const bool early : {false, true}) {
    const WindowPlan plan({{GateKind::kFfn, 0, 1, 4}}, {.max_message_bytes = 4, .send_depth = 2, .receive_depth = 2},
                          2);
    expect_sound<2, 12>({.plan = &plan,
                         .steps = {{kBulk, kBulk}, {kOne, kOne}, {kBulk, kOne}, {kOne, kBulk}, {kBulk, kBulk}},
                         .bulk_bytes = {4, 13},
                         .early_send_completions = early});
  }
}

// The driver's window on steps of one and of three gates.
TEST(PairExploration, TwoRanksLookaheadOf16) {
  for (const int entries : {1, 3}) {
    const WindowPlan plan = small_plan(entries, DS4_TP_RDMA_RECV_WINDOW, false);
    expect_sound<2, 36>({.plan = &plan,
                         .steps = {{kOne, kOne}, {kOne, kOne}, {kOne, kOne}, {kBulk, kOne}, {kOne, kBulk}},
                         .bulk_bytes = {4, 4},
                         .poll_at_once = true});
  }
}

void expect_three_ranks_sound(const WindowPlan& plan, const Steps& steps) {
  expect_sound<3, 9>({.plan = &plan, .steps = steps, .bulk_bytes = {4, 2, 3}, .poll_at_once = true});
}

TEST(PairExploration, ThreeRanks) {
  const WindowPlan plan = small_plan(1, 2, false);
  expect_three_ranks_sound(plan, {{kOne, kOne}, {kBulk, kOne}, {kOne, kBulk}});
}

// One message is lost somewhere. Where it can be told by its tag, or where nothing comes after it, no gate is done with
// another one's content.
template <int kRanks, size_t kQueue>
void expect_losses_noticed(int entries, int lookahead, const Steps& steps) {
  for (const bool apple : {false, true}) {
    const WindowPlan plan = small_plan(entries, lookahead, !apple);
    const Outcome outcome = expect_sound<kRanks, kQueue>({.plan = &plan,
                                                          .steps = steps,
                                                          .bulk_bytes = {5, 3, 4},
                                                          .apple = apple,
                                                          .may_lose = true,
                                                          .poll_at_once = kRanks > 2});
    EXPECT_GT(outcome.stuck, 0u);
    EXPECT_EQ(outcome.faults == 0, apple);
  }
}

TEST(PairExploration, LostMessages) {
  expect_losses_noticed<2, 8>(2, 2, {{kOne, kEight}, {kEight, kBulk}});
  expect_losses_noticed<2, 12>(1, 3, {{kOne, kOne}, {kMany, kOne}, {kOne, kBulk}});
  expect_losses_noticed<2, 12>(2, 3, {{kMany, kBulk}, {kBulk, kOne}, {kOne, kBulk}});
}

// Larger worlds. With COPRIME_SOAK_PERCENT above 100 all of them; else one.
TEST(PairExplorationSoak, LargerWorlds) {
  const WindowPlan one_gate = small_plan(1, 3, false), two_gates = small_plan(2, 3, false);
  expect_three_ranks_sound(one_gate, {{kOne, kMany}, {kMany, kOne}, {kOne, kBulk}});
  if (testing::soak_percent() <= 100) return;
  for (const bool early : {false, true}) {
    const WindowPlan plan = small_plan(3, 4, false);
    expect_sound<2, 12>({.plan = &plan, .steps = kDecodeSteps, .early_send_completions = early});
  }
  expect_three_ranks_sound(two_gates, {{kOne, kOne}, {kOne, kBulk}});
  expect_three_ranks_sound(one_gate, {{kOne, kOne}, {kOne, kOne}, {kBulk, kOne}, {kOne, kBulk}});
  expect_three_ranks_sound(one_gate, {{kOne, kOne}, {kEight, kBulk}});
  for (const Steps& steps : {kDecodeSteps, kWrongSteps, kVerifySteps, kBulkSteps})
    expect_losses_noticed<2, 12>(2, 3, steps);
  expect_losses_noticed<3, 9>(1, 2, {{kOne, kOne}, {kOne, kBulk}});
}

// What tags are for: without them a later message passes for the lost one.
TEST(PairExploration, LostMessageWithoutTagsIsNotNoticed) {
  const WindowPlan plan = small_plan(2, 3, false);
  const Outcome outcome =
      explore<2, 12>({.plan = &plan, .steps = kDecodeSteps, .may_lose = true, .poll_at_once = true});
  EXPECT_NE(outcome.violation.find("took seq"), std::string::npos) << outcome.violation;
}

struct Mutation {
  const char* what;
  uint32_t ignored_barrier;
  bool late_receives;
  Steps steps;
};

TEST(PairExploration, EveryRuleIsNeeded) {
  const WindowPlan plan = small_plan(2, 3, false);
  for (const Mutation& mutation : {
           Mutation{"decode barrier", kDecodeBarrier, false, kDecodeSteps},
           Mutation{"drain barrier", kDrainBarrier, false, kWrongSteps},
           Mutation{"verify barrier", kVerifyBarrier, false, kVerifySteps},
           Mutation{"bulk header", kBulkHeader, false, kBulkSteps},
           Mutation{"bulk window's barrier", kBulkWindowBarrier, false, kBulkSteps},
           Mutation{"receives before sends", 0, true, kVerifySteps},
       }) {
    SCOPED_TRACE(mutation.what);
    const Outcome outcome = explore<2, 20>({.plan = &plan,
                                            .steps = mutation.steps,
                                            .bulk_bytes = {5, 3},
                                            .ignored_barrier = mutation.ignored_barrier,
                                            .late_receives = mutation.late_receives});
    EXPECT_NE(outcome.violation, "");
    EXPECT_LE(outcome.states, kMostStates);
  }
}

}  // namespace
}  // namespace coprime
