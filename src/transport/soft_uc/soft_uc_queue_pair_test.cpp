#include "transport/soft_uc/soft_uc_queue_pair.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "transport/soft_uc/testing.h"

namespace coprime {
namespace {

using testing::pattern, testing::poll, testing::post_receive, testing::post_send, testing::received_ids,
    testing::sent_ids, testing::SoftUcEnds, testing::stream_pair;
using Ids = std::vector<uint64_t>;

template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
  return "no error";
}

TEST(SoftUc, a_message_lands_in_the_posted_receive) {
  SoftUcEnds ends;
  const auto message = pattern(1000, 1);
  std::ranges::copy(message, ends.out(1000).begin());
  post_receive(*ends.b, 7, ends.in(4096));
  post_send(*ends.a, 3, ends.out(1000));
  EXPECT_EQ(sent_ids(*ends.a), Ids{3});
  const auto received = poll(*ends.b);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].kind, Completion::Kind::kReceive);
  EXPECT_EQ(received[0].id, 7u);
  EXPECT_EQ(received[0].bytes, 1000u);
  EXPECT_EQ(received[0].status, 0u);
  EXPECT_EQ(std::memcmp(ends.in(1000).data(), message.data(), 1000), 0);
  EXPECT_EQ(ends.in(1001)[1000], std::byte{0});
}

TEST(SoftUc, messages_of_all_sizes_arrive_in_order) {
  SoftUcEnds ends;
  uint64_t id = 0;
  for (const size_t bytes : {0u, 1u, 4096u, 16'384u, 65'536u, 262'143u, 1'048'576u, 5u}) {
    ++id;
    const auto message = pattern(bytes, id);
    std::ranges::copy(message, ends.out(bytes).begin());
    post_receive(*ends.b, id, ends.in(bytes));
    post_send(*ends.a, id, ends.out(bytes));
    Ids sent, received;
    while (sent.empty() || received.empty()) {
      if (sent.empty()) sent = sent_ids(*ends.a);
      if (received.empty()) received = received_ids(*ends.b);
      ASSERT_EQ(ends.a->failure() + ends.b->failure(), "");
    }
    EXPECT_EQ(received, Ids{id});
    EXPECT_TRUE(std::ranges::equal(ends.in(bytes), message)) << bytes;
  }
}

TEST(SoftUc, a_message_that_meets_no_receive_is_lost_and_later_ones_arrive) {
  SoftUcEnds ends;
  post_receive(*ends.b, 1, ends.in(1));
  ends.send_byte(1, 11);
  ends.send_byte(2, 22);  // is there before the next receive
  post_receive(*ends.b, 2, ends.in(1, 1));
  ends.send_byte(3, 33);
  EXPECT_EQ(received_ids(*ends.b), (Ids{1, 2}));
  EXPECT_EQ(ends.in(2)[0], std::byte{11});
  EXPECT_EQ(ends.in(2)[1], std::byte{33});
  EXPECT_EQ(sent_ids(*ends.a), (Ids{1, 2, 3})) << "the sender is told nothing of the loss";
  EXPECT_EQ(ends.b->counts().unposted, 1u);
}

TEST(SoftUc, apple_a_loss_ends_its_direction_for_good_and_not_the_other) {
  SoftUcEnds ends(apple_uc_options());
  ends.send_byte(1, 11);
  poll(*ends.a), poll(*ends.a);  // it leaves in the second call
  post_receive(*ends.b, 1, ends.in(1));
  ends.send_byte(2, 22);
  poll(*ends.a), poll(*ends.a);
  EXPECT_EQ(received_ids(*ends.b), Ids{});
  EXPECT_EQ(ends.b->failure(), "");
  EXPECT_EQ(ends.b->counts().unposted, 1u);
  EXPECT_EQ(ends.b->counts().swallowed, 1u);

  post_receive(*ends.a, 5, ends.out(1, 100));
  post_send(*ends.b, 6, ends.in(1, 100));
  EXPECT_EQ(sent_ids(*ends.b), Ids{6});
  EXPECT_EQ(received_ids(*ends.a), Ids{5});
}

TEST(SoftUc, caps_are_those_of_the_options) {
  EXPECT_EQ(SoftUcEnds(apple_uc_options()).a->limits().max_message_bytes, 16'384u);
  SoftUcEnds wide(apple_uc_options(kAppleWideMaxMessageBytes));
  EXPECT_EQ(wide.a->limits().max_message_bytes, 524'288u);
  EXPECT_EQ(wide.a->limits().frame_bytes, 4096u);
  EXPECT_TRUE(wide.a->limits().completes_unsignaled);
  EXPECT_TRUE(wide.a->limits().loses_unposted);
  const QueuePairLimits strict = SoftUcEnds().a->limits();
  EXPECT_EQ(strict.frame_bytes, 0u);
  EXPECT_FALSE(strict.completes_unsignaled);
  EXPECT_TRUE(strict.loses_unposted);
  EXPECT_TRUE(strict.carries_tags);
  EXPECT_FALSE(wide.a->limits().carries_tags);
}

TEST(SoftUc, a_tag_arrives_with_its_message_unless_the_device_is_as_between_macs) {
  SoftUcOptions slow;
  slow.delay = {.base_us = 1};
  for (const SoftUcOptions& options : {SoftUcOptions{}, slow, apple_uc_options()}) {
    SoftUcEnds ends(options);
    for (uint64_t id = 1; id <= 2; ++id) post_receive(*ends.b, id, ends.in(1, id));
    for (uint32_t id = 1; id <= 2; ++id) post_send(*ends.a, id, ends.out(1, id), 0, 0xf0000000 + id);
    poll(*ends.a);  // on some devices bytes leave only then
    poll(*ends.a);
    std::vector<uint32_t> tags;
    for (const int64_t end_us = now_us() + 2'000'000; tags.size() < 2 && now_us() < end_us;) {
      for (const Completion& completion : poll(*ends.b)) tags.push_back(completion.tag);
    }
    const bool carried = options.carries_tags;
    EXPECT_EQ(tags, (std::vector<uint32_t>{carried ? 0xf0000001 : 0, carried ? 0xf0000002 : 0}));
  }
}

TEST(SoftUc, unsignaled_sends_complete_only_where_the_device_completes_all) {
  for (const bool all : {false, true}) {
    SoftUcEnds ends(SoftUcOptions{.completes_unsignaled = all});
    const WorkRequest chain[2] = {{.id = 1, .data = ends.out(1).data(), .bytes = 1, .signaled = false},
                                  {.id = 2, .data = ends.out(1).data(), .bytes = 1}};
    ends.a->post_send(chain);
    EXPECT_EQ(sent_ids(*ends.a), all ? (Ids{1, 2}) : Ids{2});
  }
}

TEST(SoftUc, an_early_completion_comes_before_the_bytes_are_read) {
  for (const bool early : {false, true}) {
    SoftUcEnds ends(SoftUcOptions{.completes_sends_early = early});
    post_receive(*ends.b, 1, ends.in(1));
    ends.send_byte(1, 11);
    EXPECT_EQ(poll(*ends.a).size(), 1u);
    ends.out(1)[0] = std::byte{99};  // who takes the completion for the delivery
    EXPECT_EQ(received_ids(*ends.b).size(), early ? 0u : 1u);
    poll(*ends.a);
    received_ids(*ends.b);
    EXPECT_EQ(ends.in(1)[0], std::byte{early ? uint8_t{99} : uint8_t{11}});
  }
}

TEST(SoftUc, an_early_send_wakes_who_sleeps_until_it_has_left) {
  SoftUcEnds ends(SoftUcOptions{.completes_sends_early = true});
  ends.send_byte(1, 11);
  poll(*ends.a);
  pollfd wanted = ends.a->wait_on();
  EXPECT_EQ(::poll(&wanted, 1, 0), 1);
  poll(*ends.a);
  wanted = ends.a->wait_on();
  EXPECT_EQ(::poll(&wanted, 1, 0), 0);
}

TEST(SoftUc, a_fresh_pair_is_mute_in_one_direction_until_it_is_made_again) {
  SoftUcEnds ends({}, SoftUcOptions{.mute_pairs = 1});
  for (const bool again : {false, true}) {
    if (again) {
      ends.a.reset(), ends.b.reset();
      std::tie(ends.a, ends.b) = connect_soft_uc(ends.device_a, ends.device_b);
      ends.a->register_memory(ends.memory_a);
      ends.b->register_memory(ends.memory_b);
    }
    post_receive(*ends.b, 1, ends.in(1));
    ends.send_byte(1, 11);
    EXPECT_EQ(received_ids(*ends.b), again ? Ids{1} : Ids{});
    post_receive(*ends.a, 2, ends.out(1, 100));
    post_send(*ends.b, 2, ends.in(1, 100));
    EXPECT_EQ(received_ids(*ends.a), Ids{2});
  }
}

TEST(SoftUc, states_come_in_order) {
  auto device = std::make_shared<SoftUcDevice>(SoftUcOptions{});
  auto [one, other] = stream_pair();
  SoftUcQueuePair pair(device);
  EXPECT_EQ(pair.wait_on().fd, -1);
  EXPECT_EQ(error_of([&] { pair.to_ready_to_send(); }),
            "a queue pair in state RESET cannot become RTS: bring it to RTR first");
  pair.to_init();
  EXPECT_EQ(error_of([&] { pair.to_init(); }),
            "a queue pair in state INIT cannot become INIT: bring it to RESET first");
  pair.to_ready_to_receive(std::move(one));
  pair.to_ready_to_send();
  EXPECT_EQ(pair.state(), SoftUcQueuePair::State::kReadyToSend);
}

TEST(SoftUc, apple_refuses_receives_before_ready_to_send) {
  for (const bool apple : {false, true}) {
    auto device = std::make_shared<SoftUcDevice>(apple ? apple_uc_options() : SoftUcOptions{});
    auto [one, other] = stream_pair();
    std::vector<std::byte> memory(100);
    SoftUcQueuePair pair(device);
    pair.register_memory(memory);
    pair.to_init();
    pair.to_ready_to_receive(std::move(one));
    post_receive(pair, 1, memory);
    EXPECT_EQ(pair.failure(), apple ? "is not reached: the device refused a receive in state RTR" : "");
  }
}

TEST(SoftUc, sends_before_ready_to_send_and_receives_in_reset_are_refused) {
  auto device = std::make_shared<SoftUcDevice>(SoftUcOptions{});
  std::vector<std::byte> memory(100);
  SoftUcQueuePair sender(device), receiver(device);
  sender.register_memory(memory);
  sender.to_init();
  post_send(sender, 1, memory);
  EXPECT_EQ(sender.failure(), "is not reached: the device refused a send in state INIT");
  post_receive(receiver, 1, memory);
  EXPECT_EQ(receiver.failure(), "is not reached: the device refused a receive in state RESET");
}

TEST(SoftUc, sends_and_receives_must_cover_equally_many_frames) {
  struct Case {
    size_t sent, posted;
    bool fits;
  };
  for (const Case& c : {Case{4096, 4096, true}, Case{1, 4096, true}, Case{0, 10, true}, Case{4097, 8192, true},
                        Case{4096, 4097, false}, Case{100, 8192, false}, Case{16'384, 16'384, true}}) {
    SoftUcEnds ends(SoftUcOptions{.frame_bytes = 4096});
    post_receive(*ends.b, 1, ends.in(c.posted));
    post_send(*ends.a, 1, ends.out(c.sent));
    const auto told = poll(*ends.b);
    ASSERT_EQ(told.size(), 1u);
    EXPECT_EQ(told[0].status == 0, c.fits) << c.sent << " in " << c.posted;
    EXPECT_EQ(ends.b->failure(),
              c.fits ? "" : fmt::format("sent {} bytes, which do not fit the receive that they met", c.sent));
    EXPECT_TRUE(poll(*ends.b).empty());
  }
}

TEST(SoftUc, a_message_longer_than_its_receive_ends_the_pair_before_a_byte_is_written) {
  SoftUcEnds ends;
  ends.out(101)[0] = std::byte{1};
  post_receive(*ends.b, 1, ends.in(100));
  post_send(*ends.a, 1, ends.out(101));
  EXPECT_EQ(poll(*ends.b).size(), 1u);
  EXPECT_EQ(ends.b->failure(), "sent 101 bytes, which do not fit the receive that they met");
  EXPECT_EQ(ends.in(1)[0], std::byte{0});
}

TEST(SoftUc, a_device_has_ten_pairs_and_a_hundred_regions) {
  auto device = std::make_shared<SoftUcDevice>(apple_uc_options());
  std::vector<std::unique_ptr<SoftUcQueuePair>> pairs;
  for (int i = 0; i < 10; ++i) pairs.push_back(std::make_unique<SoftUcQueuePair>(device));
  EXPECT_EQ(error_of([&] { SoftUcQueuePair pair(device); }),
            "a queue pair cannot be created: the device has the 10 that it allows: use fewer peers");
  pairs.pop_back();
  pairs.push_back(std::make_unique<SoftUcQueuePair>(device));

  std::vector<std::byte> memory(100);
  for (size_t i = 0; i < 100; ++i) EXPECT_TRUE(pairs[i % 10]->register_memory(std::span(memory).subspan(i, 1)));
  EXPECT_EQ(error_of([&] { pairs[0]->register_memory(memory); }),
            "memory cannot be registered: the device has the 100 regions that it allows: register fewer and larger "
            "ones");
  pairs.pop_back();  // and its ten regions
  EXPECT_EQ(device->regions(), 90);
  EXPECT_TRUE(pairs[0]->register_memory(memory));
}

TEST(SoftUc, foreign_memory_is_refused) {
  std::vector<std::byte> foreign(100), own(100);
  auto device = std::make_shared<SoftUcDevice>(SoftUcOptions{
      .refuses_memory = [&](std::span<const std::byte> memory) { return memory.data() == foreign.data(); }});
  SoftUcQueuePair pair(device);
  EXPECT_FALSE(pair.register_memory(foreign));
  EXPECT_TRUE(pair.register_memory(own));
  EXPECT_EQ(device->regions(), 1);
}

TEST(SoftUc, entries_come_back_when_completions_are_told) {
  SoftUcEnds ends(SoftUcOptions{.send_depth = 4, .receive_depth = 4});
  for (uint64_t round = 0; round < 5; ++round) {
    for (uint64_t i = 0; i < 4; ++i) post_receive(*ends.b, i, ends.in(1));
    for (uint64_t i = 0; i < 4; ++i) ends.send_byte(i, 1);
    EXPECT_EQ(received_ids(*ends.b), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(sent_ids(*ends.a), (Ids{0, 1, 2, 3}));
  }
}

TEST(SoftUc, delayed_messages_arrive_in_order_when_their_time_has_come) {
  SoftUcOptions delayed;
  delayed.delay = {.base_us = 20'000, .jitter_us = 5'000};
  SoftUcEnds ends({}, delayed);
  for (uint64_t id = 1; id <= 20; ++id) post_receive(*ends.b, id, ends.in(1, id));
  const int64_t start_us = now_us();
  for (uint64_t id = 1; id <= 20; ++id) ends.send_byte(id, static_cast<uint8_t>(id));
  Ids received;
  int64_t first_us = 0;
  while (received.size() < 20) {
    pollfd wanted = ends.b->wait_on();
    ASSERT_EQ(::poll(&wanted, 1, 5000), 1) << "who sleeps on the pair is woken when the message arrives";
    for (const uint64_t id : received_ids(*ends.b)) received.push_back(id);
    if (!received.empty() && first_us == 0) first_us = now_us();
  }
  EXPECT_GE(first_us - start_us, 20'000);
  for (uint64_t id = 1; id <= 20; ++id) {
    EXPECT_EQ(received[id - 1], id);
    EXPECT_EQ(ends.in(1, id)[0], static_cast<std::byte>(id));
  }
}

TEST(SoftUc, a_receive_posted_while_the_message_is_on_its_way_is_in_time) {
  SoftUcOptions delayed;
  delayed.delay = {.base_us = 50'000};
  SoftUcEnds ends({}, delayed);
  ends.send_byte(1, 11);
  poll(*ends.b);
  post_receive(*ends.b, 1, ends.in(1));
  const int64_t end_us = now_us() + 5'000'000;
  Ids received;
  while (received.empty() && now_us() < end_us) received = received_ids(*ends.b);
  EXPECT_EQ(received, Ids{1});
}

TEST(SoftUc, a_stalled_message_holds_up_those_behind_it) {
  SoftUcOptions stalling;
  stalling.delay = {.stall_every = 2, .stall_us = 30'000};
  SoftUcEnds ends({}, stalling);
  for (uint64_t id = 1; id <= 3; ++id) post_receive(*ends.b, id, ends.in(1));
  const int64_t start_us = now_us();
  for (uint64_t id = 1; id <= 3; ++id) ends.send_byte(id, 1);
  EXPECT_EQ(received_ids(*ends.b), Ids{1});
  Ids received;
  while (received.size() < 2) {
    for (const uint64_t id : received_ids(*ends.b)) received.push_back(id);
  }
  EXPECT_EQ(received, (Ids{2, 3}));
  EXPECT_GE(now_us() - start_us, 30'000);
}

TEST(SoftUc, a_dead_peer_is_not_noticed) {
  SoftUcEnds ends;
  post_receive(*ends.b, 1, ends.in(1));
  post_receive(*ends.b, 2, ends.in(1));
  ends.send_byte(1, 1);
  ends.a.reset();
  EXPECT_EQ(received_ids(*ends.b), Ids{1}) << "what it sent before arrives";
  for (uint64_t id = 1; id <= 3; ++id) post_send(*ends.b, id, ends.in(1));
  EXPECT_EQ(sent_ids(*ends.b), (Ids{1, 2, 3}));
  EXPECT_EQ(ends.b->failure(), "");
  EXPECT_EQ(ends.b->wait_on().fd, -1) << "sleepers must not spin on a closed socket";
}

TEST(SoftUc, only_stream_sockets_are_wires) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
  UniqueFd one(ends[0]), other(ends[1]);
  auto device = std::make_shared<SoftUcDevice>(SoftUcOptions{});
  EXPECT_EQ(error_of([&] { connect_soft_uc(device, std::move(one)); }),
            "a software queue pair needs a stream socket, this one is of type 2");
  EXPECT_EQ(device->queue_pairs(), 0);
}

TEST(SoftUcDeathTest, more_than_the_limits_is_a_broken_invariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SoftUcEnds ends(
      SoftUcOptions{.max_message_bytes = 100, .send_depth = 2, .receive_depth = 2, .max_posted_bytes = 150});
  EXPECT_DEATH(post_send(*ends.a, 1, ends.out(101)), "101 bytes in one message of at most 100");
  std::vector<std::byte> unregistered(10);
  EXPECT_DEATH(post_send(*ends.a, 1, unregistered), "the 10 bytes of request 1 are not registered");
  post_receive(*ends.b, 1, ends.in(100));
  EXPECT_DEATH(post_receive(*ends.b, 2, ends.in(51)), "100 bytes are posted of 150, 51 more are wanted");
  post_receive(*ends.b, 2, ends.in(50));
  EXPECT_DEATH(post_receive(*ends.b, 3, ends.in(0)), "2 entries are taken of 2, 1 more are wanted");
}

TEST(SoftUcDeathTest, depths_count_frames) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SoftUcEnds ends(SoftUcOptions{.receive_depth = 8, .frame_bytes = 4096});
  post_receive(*ends.b, 1, ends.in(16'384));
  post_receive(*ends.b, 2, ends.in(12'288));
  EXPECT_DEATH(post_receive(*ends.b, 3, ends.in(4097)), "7 entries are taken of 8, 2 more are wanted");
  post_receive(*ends.b, 3, ends.in(4096));
}

TEST(SoftUcDeathTest, apple_bounds_the_posted_bytes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  SoftUcOptions options = apple_uc_options(kAppleWideMaxMessageBytes);
  options.receive_depth = 4096;
  SoftUcEnds ends(options);
  for (uint64_t id = 1; id <= 63; ++id) post_receive(*ends.b, id, ends.in(65'536));
  EXPECT_DEATH(post_receive(*ends.b, 64, ends.in(65'536)), "4128768 bytes are posted of 4128768, 65536 more");
}

}  // namespace
}  // namespace coprime
