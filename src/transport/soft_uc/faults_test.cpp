// What goes wrong on purpose: each fault does what it says, where it says it, and nothing else.
#include <gtest/gtest.h>

#include "transport/soft_uc/status.h"
#include "transport/soft_uc/testing.h"

namespace coprime {
namespace {

using testing::poll, testing::post_receive, testing::received_ids, testing::sent_ids, testing::SoftUcEnds;
using Fault = SoftUcFault::Kind;
using Ids = std::vector<uint64_t>;

SoftUcOptions with(SoftUcFault fault) {
  SoftUcOptions options;
  options.faults = {fault};
  return options;
}

// Messages of one byte 1, 2, ... `count` from a to b; the receives have ids 1, 2, ... and take a byte each.
struct Messages {
  Messages(const SoftUcOptions& of_b, int count) : ends({}, of_b) {
    for (int i = 1; i <= count; ++i)
      post_receive(*ends.b, static_cast<uint64_t>(i), ends.in(1, static_cast<size_t>(i)));
    for (int i = 1; i <= count; ++i) ends.send_byte(static_cast<uint64_t>(i), static_cast<uint8_t>(i));
    told = poll(*ends.b);
    for (int i = 1; i <= count; ++i) values.push_back(static_cast<int>(ends.in(1, static_cast<size_t>(i))[0]));
  }
  Ids ids() const {
    Ids all;
    for (const Completion& completion : told) all.push_back(completion.id);
    return all;
  }
  SoftUcEnds ends;
  std::vector<Completion> told;
  std::vector<int> values;
};

TEST(SoftUcFault, strikes_once_or_again_and_again) {
  const SoftUcFault once{.first = 3}, again{.first = 3, .every = 2};
  std::string strikes;
  for (uint64_t n = 1; n <= 8; ++n) strikes += fmt::format("{}{} ", int{once.strikes(n)}, int{again.strikes(n)});
  EXPECT_EQ(strikes, "00 00 11 00 01 00 01 00 ");
}

TEST(SoftUcFault, drops_every_nth_message) {
  const Messages run(with({.kind = Fault::kDropMessage, .first = 2, .every = 3}), 6);
  EXPECT_EQ(run.ids(), (Ids{1, 2, 3, 4}));
  EXPECT_EQ(run.values, (std::vector<int>{1, 3, 4, 6, 0, 0}));
}

TEST(SoftUcFault, flips_one_bit_at_a_place_that_the_seed_decides) {
  std::vector<int> places;
  for (const uint64_t seed : {1u, 1u, 2u}) {
    SoftUcOptions options = with({.kind = Fault::kFlipByte});
    options.seed = seed;
    SoftUcEnds ends({}, options);
    post_receive(*ends.b, 1, ends.in(1000));
    testing::post_send(*ends.a, 1, ends.out(1000));
    EXPECT_EQ(received_ids(*ends.b), Ids{1});
    std::vector<int> changed;
    for (int i = 0; i < 1000; ++i) {
      if (ends.in(1000)[static_cast<size_t>(i)] != std::byte{0}) changed.push_back(i);
    }
    ASSERT_EQ(changed.size(), 1u);
    places.push_back(changed[0]);
  }
  EXPECT_EQ(places[0], places[1]);
  EXPECT_NE(places[0], places[2]);
}

TEST(SoftUcFault, repeats_a_message) {
  const Messages run(with({.kind = Fault::kRepeatMessage, .first = 2}), 3);
  EXPECT_EQ(run.values, (std::vector<int>{1, 2, 2}));
  EXPECT_EQ(run.ends.b->counts().unposted, 1u);
}

TEST(SoftUcFault, swaps_a_message_with_the_next) {
  EXPECT_EQ(Messages(with({.kind = Fault::kSwapMessages, .first = 2}), 4).values, (std::vector<int>{1, 3, 2, 4}));
}

TEST(SoftUcFault, tells_a_completion_twice) {
  EXPECT_EQ(Messages(with({.kind = Fault::kDuplicateCompletion, .first = 2}), 3).ids(), (Ids{1, 2, 2, 3}));
}

TEST(SoftUcFault, loses_a_completion_whose_message_arrived) {
  const Messages run(with({.kind = Fault::kLoseCompletion, .first = 2}), 3);
  EXPECT_EQ(run.ids(), (Ids{1, 3}));
  EXPECT_EQ(run.values, (std::vector<int>{1, 2, 3}));
}

TEST(SoftUcFault, tells_the_id_of_another_request) {
  EXPECT_EQ(Messages(with({.kind = Fault::kWrongId, .first = 2}), 4).ids(), (Ids{1, 4, 3, 4}));
  EXPECT_EQ(Messages(with({.kind = Fault::kWrongId, .first = 2}), 2).ids(), (Ids{1, 1}));
}

TEST(SoftUcFault, tells_an_id_that_no_request_has) {
  const Ids ids = Messages(with({.kind = Fault::kUnknownId, .first = 2}), 3).ids();
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_GT(ids[1], 3u);
}

TEST(SoftUcFault, tells_a_wrong_length) {
  const Messages run(with({.kind = Fault::kWrongLength, .first = 2}), 3);
  ASSERT_EQ(run.told.size(), 3u);
  EXPECT_EQ(run.told[0].bytes, 1u);
  EXPECT_EQ(run.told[1].bytes, 0u);
}

TEST(SoftUcFault, a_bad_status_is_told_and_ends_the_pair) {
  Messages run(with({.kind = Fault::kBadStatus, .first = 2}), 3);
  ASSERT_EQ(run.told.size(), 2u);
  EXPECT_EQ(run.told[1].status, kSoftUcGeneralError);
  EXPECT_EQ(run.ends.b->failure(), "is not reached: a completion has status 21");
  EXPECT_TRUE(poll(*run.ends.b).empty());
}

TEST(SoftUcFault, strikes_completions_of_sends_where_it_says_so) {
  const SoftUcOptions options = with({.kind = Fault::kDuplicateCompletion, .first = 2, .of = Completion::Kind::kSend});
  SoftUcEnds ends(options, options);
  for (uint64_t id = 1; id <= 3; ++id) post_receive(*ends.b, id, ends.in(1));
  for (uint64_t id = 1; id <= 3; ++id) ends.send_byte(id, 1);
  EXPECT_EQ(sent_ids(*ends.a), (Ids{1, 2, 2, 3}));
  EXPECT_EQ(received_ids(*ends.b), (Ids{1, 2, 3}));
}

TEST(SoftUcFault, a_completion_queue_loses_what_it_does_not_hold) {
  SoftUcOptions lying;
  lying.completion_queue_holds = 3;
  Messages run(lying, 5);
  EXPECT_EQ(run.ids(), (Ids{1, 2, 3}));
  EXPECT_EQ(run.values, (std::vector<int>{1, 2, 3, 4, 5})) << "the messages themselves arrived";
  EXPECT_EQ(received_ids(*run.ends.b), Ids{});
  post_receive(*run.ends.b, 6, run.ends.in(1, 6));
  run.ends.send_byte(6, 6);
  EXPECT_EQ(received_ids(*run.ends.b), Ids{6});
}

TEST(SoftUcFault, sends_and_receives_share_the_completion_queue) {
  SoftUcOptions lying;
  lying.completion_queue_holds = 3;
  SoftUcEnds ends(lying, {});
  post_receive(*ends.a, 9, ends.out(1, 100));
  testing::post_send(*ends.b, 1, ends.in(1));
  for (uint64_t id = 1; id <= 3; ++id) ends.send_byte(id, 1);
  EXPECT_EQ(received_ids(*ends.a), Ids{}) << "three sends fill it";
}

TEST(SoftUcFault, entries_of_lost_completions_come_back_with_the_next) {
  SoftUcOptions options = with({.kind = Fault::kLoseCompletion, .first = 1, .every = 2});
  options.receive_depth = 2;
  SoftUcEnds ends({}, options);
  for (int round = 0; round < 4; ++round) {
    post_receive(*ends.b, 1, ends.in(1));
    post_receive(*ends.b, 2, ends.in(1));
    ends.send_byte(1, 1);
    ends.send_byte(2, 2);
    EXPECT_EQ(received_ids(*ends.b), Ids{2});
  }
}

}  // namespace
}  // namespace coprime
