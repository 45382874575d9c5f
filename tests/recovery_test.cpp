// A step that fails is a request's end and not the world's: ranks that stood still and came back go on with the next
// request, over new links.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

#include "base/clock.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

constexpr int kTimeoutMs = 750;

WorldOptions process_world(const Golden& golden, int ranks, Link link) {
  WorldOptions options = thread_world(golden, ranks);
  options.link = link;
  options.context = 4096;
  options.gate_timeout_ms = kTimeoutMs;
  options.launch = {.as = RanksAs::kProcesses, .program = COPRIME_PROGRAM};
  return options;
}

std::vector<int32_t> answer(Front& front, const GoldenGreedy& greedy, const std::vector<int32_t>& eos) {
  return generate(front,
                  {.prompt = greedy.prompt, .max_tokens = static_cast<int64_t>(greedy.continuation.size()), .eos = eos})
      .ids;
}

std::vector<int32_t> expected(const GoldenGreedy& greedy, const std::vector<int32_t>& eos) {
  std::vector<int32_t> ids = greedy.continuation;
  while (!ids.empty() && std::ranges::find(eos, ids.back()) != eos.end()) ids.pop_back();
  return ids;
}

class Recovery : public testing::TestWithParam<std::tuple<Link, int>> {};

TEST_P(Recovery, a_rank_that_stood_still_fails_its_request_and_serves_the_next) {
  const auto [link, victim] = GetParam();
  const Golden golden = read_golden("mini-qwen35");
  Front front(process_world(golden, 3, link));
  for (int round = 0; round < 2; ++round) {
    std::atomic<bool> failed = false;
    // On a busy machine a peer may look at its clock only when the rank is back: then it stands still once more.
    std::thread other([&, v = victim] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      while (!failed) {
        ::kill(front.process(v), SIGSTOP);
        std::this_thread::sleep_for(std::chrono::milliseconds(kTimeoutMs + 300));
        ::kill(front.process(v), SIGCONT);
        for (int i = 0; i < 100 && !failed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
    std::string text = "no error";
    try {
      for (int i = 0; i < 1000; ++i) generate(front, {.prompt = {572, 1, 2, 3}, .max_tokens = 2000});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLink);
      text = error.what();
    }
    failed = true;
    other.join();
    EXPECT_NE(text.find(fmt::format("rank {}", victim)), std::string::npos) << text;
    ASSERT_TRUE(front.usable()) << text;
    EXPECT_EQ(front.statistics().rebuilds, static_cast<uint64_t>(round + 1));
    for (int i = 0; i < 2; ++i) {
      const GoldenGreedy& greedy = golden.greedy[static_cast<size_t>(i)];
      EXPECT_EQ(answer(front, greedy, golden.eos), expected(greedy, golden.eos));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Links, Recovery, testing::Values(std::tuple{Link::kAuto, 2}, std::tuple{Link::kTcp, 0}));

TEST(FailedStep, a_request_that_every_rank_refuses_leaves_the_world_whole) {
  const Golden golden = read_golden("mini-qwen35");
  Front front(process_world(golden, 3, Link::kAuto));
  StepBatch batch;
  batch.sequences.push_back({.sequence = 0, .rows = 1, .pages = {0, {0}}, .state_out = 0});
  batch.ids = {1 << 20};  // no such token
  EXPECT_THROW(front.step(batch), Error);
  ASSERT_TRUE(front.usable());
  EXPECT_EQ(answer(front, golden.greedy[0], golden.eos), expected(golden.greedy[0], golden.eos));
}

TEST(Cancellation, between_two_steps_leaves_all_ranks_in_phase) {
  const Golden golden = read_golden("mini-qwen35");
  WorldOptions options = process_world(golden, 3, Link::kAuto);
  options.max_rows = 4;  // a prompt takes many steps
  Front front(options);
  for (int steps : {0, 1, 3, 20}) {
    int asked = 0;
    const Generation cut = generate(
        front, {.prompt = golden.greedy[1].prompt, .max_tokens = 50, .cancelled = [&] { return asked++ == steps; }});
    EXPECT_EQ(cut.finish, Finish::kCancelled);
    EXPECT_EQ(answer(front, golden.greedy[0], golden.eos), expected(golden.greedy[0], golden.eos));
  }
  EXPECT_EQ(front.statistics().rebuilds, 0u);
  // What was given up is gone: its next row has no pages.
  StepBatch batch;
  batch.sequences.push_back({.sequence = 0, .start = 8, .rows = 1, .pages = {0, {}}, .state_in = 0, .state_out = 0});
  batch.ids = {1};
  front.cancel(0);
  EXPECT_THROW(front.step(batch), Error);
}

TEST(FailedStep, a_dead_rank_ends_the_world_and_later_steps_say_why) {
  const Golden golden = read_golden("mini-qwen35");
  Front front(process_world(golden, 2, Link::kAuto));
  const pid_t victim = front.process(1);
  ::kill(victim, SIGKILL);
  std::array<std::string, 2> texts;
  for (std::string& text : texts) {
    try {
      generate(front, {.prompt = {572, 1}, .max_tokens = 5});
    } catch (const Error& error) {
      text = error.what();
    }
  }
  EXPECT_NE(texts[0].find(fmt::format("rank 1 (process {}) was killed by signal 9", victim)), std::string::npos)
      << texts[0];
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_FALSE(front.usable());
}

}  // namespace
}  // namespace coprime
