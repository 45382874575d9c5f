#include "model/step_batch.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace coprime {
namespace {

StepBatch two_sequences() {
  StepBatch batch{.step = 77, .trace = true, .ids = {5, 6, 7, 8}, .cancelled = {3}};
  batch.sequences.push_back({.sequence = 1,
                             .start = 128,
                             .rows = 3,
                             .pages = {2, {9, 4}},
                             .state_in = 1,
                             .state_out = 0,
                             .logits = {{0, 20}, {2, 0}}});
  batch.sequences.push_back({.sequence = 0, .kind = RowsKind::kDecode, .start = 9, .rows = 1});
  return batch;
}

TEST(StepBatch, comes_back_as_it_was) {
  const StepBatch batch = decode_step_batch(encode(two_sequences()));
  EXPECT_EQ(batch.step, 77u);
  EXPECT_TRUE(batch.trace);
  EXPECT_EQ(batch.ids, (std::vector<int32_t>{5, 6, 7, 8}));
  EXPECT_EQ(batch.cancelled, std::vector<int32_t>{3});
  ASSERT_EQ(batch.sequences.size(), 2u);
  const SequenceRows& first = batch.sequences[0];
  EXPECT_EQ(first.sequence, 1);
  EXPECT_EQ(first.start, 128);
  EXPECT_EQ(first.rows, 3);
  EXPECT_EQ(first.pages.first, 2);
  EXPECT_EQ(first.pages.pages, (std::vector<int32_t>{9, 4}));
  EXPECT_EQ(first.state_in, 1);
  EXPECT_EQ(first.state_out, 0);
  ASSERT_EQ(first.logits.size(), 2u);
  EXPECT_EQ(first.logits[1].row, 2);
  EXPECT_EQ(first.logits[0].top_k, 20);
  EXPECT_EQ(batch.sequences[1].kind, RowsKind::kDecode);
  EXPECT_EQ(batch.sequences[1].state_in, -1);
}

TEST(StepResult, comes_back_as_it_was) {
  StepResult result{.step = 3,
                    .rows = {{{{1.5f, 7}}, {}}, {{}, {1, 2, 3}}},
                    .gate_hashes = {1, 2},
                    .compute_us = 10,
                    .gate_us = 4,
                    .recorded = {5, 6, {{.begin_ns = 7, .end_ns = 8, .kind = TraceKind::kFold}}}};
  std::vector<std::byte> bytes;
  encode(result, bytes);
  const StepResult back = decode_step_result(bytes);
  EXPECT_EQ(back.rows[0].best[0].id, 7);
  EXPECT_EQ(back.rows[1].all, (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(back.gate_hashes, result.gate_hashes);
  EXPECT_EQ(back.compute_us, 10);
  EXPECT_EQ(back.recorded.clock, 5u);
  EXPECT_EQ(back.recorded.overwritten, 6u);
  ASSERT_EQ(back.recorded.events.size(), 1u);
  EXPECT_EQ(back.recorded.events[0].end_ns, 8);
  EXPECT_EQ(back.recorded.events[0].kind, TraceKind::kFold);
}

TEST(StepBatch, that_contradicts_itself_is_refused) {
  const auto refused = [](const std::function<void(StepBatch&)>& damage) {
    StepBatch batch = two_sequences();
    damage(batch);
    EXPECT_THROW(decode_step_batch(encode(batch)), Error);
  };
  refused([](StepBatch& b) { b.ids.pop_back(); });
  refused([](StepBatch& b) { b.sequences[0].rows = 0; });
  refused([](StepBatch& b) { b.sequences[0].rows = -3; });
  refused([](StepBatch& b) { b.sequences[1].start = -1; });
  refused([](StepBatch& b) { b.sequences[0].logits[0].row = 3; });
  refused([](StepBatch& b) { b.sequences[0].logits[0].top_k = -1; });
}

// Every truncation, and many mutations: an Error or a batch within its bounds, never a crash or a huge allocation.
TEST(StepBatch, of_hostile_bytes_is_refused_or_sound) {
  const std::vector<std::byte> good = encode(two_sequences());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(decode_step_batch(std::span(good).first(length)), Error) << length;
  }
  std::mt19937 random(5);
  int sound = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes = good;
    for (int flips = 0; flips <= i % 3; ++flips) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    try {
      const StepBatch batch = decode_step_batch(bytes);
      int64_t rows = 0;
      for (const SequenceRows& sequence : batch.sequences) rows += sequence.rows;
      EXPECT_EQ(rows, batch.rows());
      ++sound;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(sound, 0);
  EXPECT_LT(sound, 100'000);
}

TEST(StepResult, with_events_that_cannot_be_is_refused) {
  const auto refused = [](const TraceEvent& event) {
    std::vector<std::byte> bytes;
    encode(StepResult{.recorded = {.events = {event}}}, bytes);
    EXPECT_THROW(decode_step_result(bytes), Error);
  };
  refused({.begin_ns = 2, .end_ns = 1});
  refused({.begin_ns = -1, .end_ns = 1});
  refused({.begin_ns = 1, .end_ns = INT64_MAX});
  refused({.kind = static_cast<TraceKind>(kTraceKinds)});
}

TEST(StepResult, of_hostile_bytes_is_refused_or_sound) {
  std::vector<std::byte> good;
  encode(StepResult{.step = 3, .rows = {{{{1.5f, 7}}, {1, 2}}}, .gate_hashes = {1, 2}}, good);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_THROW(decode_step_result(std::span(good).first(length)), Error) << length;
  }
  std::mt19937 random(6);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<std::byte> bytes = good;
    bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    try {
      decode_step_result(bytes);
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace coprime
