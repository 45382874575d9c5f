#include "transport/authenticated_queue_pair.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/clock.h"
#include "transport/soft_uc/testing.h"
#include "transport/tcp/tcp_queue_pair.h"

namespace coprime {
namespace {

using testing::pattern, testing::poll, testing::post_receive, testing::post_send, testing::received_ids,
    testing::sent_ids, testing::stream_pair;
using Fault = SoftUcFault::Kind;
using Ids = std::vector<uint64_t>;
using Session = AuthenticatedQueuePair::Session;

constexpr const char* kFails = "sent a message whose authentication fails: wrong key, or the link changes bytes";
constexpr size_t kSlotBytes = 64 * 1024;

std::array<std::byte, 32> key_of(uint8_t seed) {
  std::array<std::byte, 32> key;
  for (size_t i = 0; i < key.size(); ++i) key[i] = static_cast<std::byte>(seed + i);
  return key;
}
const std::array<std::byte, 32> kKey = key_of(1), kOtherKey = key_of(2);

const Session kAtRank0 = {.key = kKey, .epoch = 1, .rank = 0, .peer = 1};
const Session kAtRank1 = {.key = kKey, .epoch = 1, .rank = 1, .peer = 0};

// Rank 0 sends to rank 1.
struct Ends {
  Ends(std::unique_ptr<QueuePair> inner_a, std::unique_ptr<QueuePair> inner_b, const Session& session_b = kAtRank1)
      : a(std::move(inner_a), kAtRank0, kSlotBytes), b(std::move(inner_b), session_b, kSlotBytes) {}
  AuthenticatedQueuePair a, b;
};

std::unique_ptr<SoftUcQueuePair> soft_end(UniqueFd socket, const SoftUcOptions& options) {
  return connect_soft_uc(std::make_shared<SoftUcDevice>(options), std::move(socket));
}
Ends over_soft_uc(const SoftUcOptions& options_b = {}, const SoftUcOptions& options_a = {},
                  const Session& session_b = kAtRank1) {
  auto [one, other] = stream_pair();
  return Ends(soft_end(std::move(one), options_a), soft_end(std::move(other), options_b), session_b);
}
Ends over_tcp(const Session& session_b = kAtRank1) {
  auto [one, other] = stream_pair();
  return Ends(std::make_unique<TcpQueuePair>(std::move(one), 1), std::make_unique<TcpQueuePair>(std::move(other), 1),
              session_b);
}
SoftUcOptions with(SoftUcFault fault) {
  SoftUcOptions options;
  options.faults = {fault};
  return options;
}

// Sends one message of 100 bytes that meets a receive of 200 and returns the receiver's failure; no byte may be written
// if there is one.
std::string send_one(Ends& ends, uint64_t label_a = 0, uint64_t label_b = 0) {
  std::vector<std::byte> out = pattern(100, 3), in(200);
  post_receive(ends.b, 1, in, label_b);
  post_send(ends.a, 1, out, label_a);
  const Ids received = received_ids(ends.b);
  EXPECT_EQ(received.empty(), !ends.b.failure().empty());
  if (received.empty()) {
    EXPECT_EQ(in, std::vector<std::byte>(200));
  } else {
    EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
  }
  return ends.b.failure();
}

TEST(Authenticated, messages_arrive_with_their_ids_lengths_and_tags) {
  for (const bool tcp : {false, true}) {
    Ends ends = tcp ? over_tcp() : over_soft_uc();
    std::vector<std::byte> in(kSlotBytes);
    uint64_t id = 100;
    for (const size_t bytes : {0u, 1u, 16u, 1000u, 16'384u, 65'536u}) {
      std::vector<std::byte> out = pattern(bytes, ++id);
      post_receive(ends.b, id, in, 5);
      post_send(ends.a, id + 50, out, 5, 77);
      Completion received;
      Ids sent;
      for (int count = 0; count == 0 || sent.empty();) {
        if (count == 0) count = ends.b.poll({&received, 1});
        if (sent.empty()) sent = sent_ids(ends.a);
        ASSERT_EQ(ends.a.failure() + ends.b.failure(), "");
      }
      EXPECT_EQ(sent, Ids{id + 50});
      EXPECT_EQ(received.kind, Completion::Kind::kReceive);
      EXPECT_EQ(received.id, id);
      EXPECT_EQ(received.bytes, bytes);
      EXPECT_EQ(received.tag, ends.a.limits().carries_tags ? 77u : 0u);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin())) << bytes;
    }
  }
}

TEST(Authenticated, what_differs_between_the_ends_ends_the_pair) {
  struct Case {
    Session session;
    bool fails;
  };
  for (const Case& c : {Case{kAtRank1, false}, Case{{kOtherKey, 1, 1, 0}, true}, Case{{kKey, 2, 1, 0}, true},
                        Case{{kKey, 1, 2, 0}, true}, Case{{kKey, 1, 1, 2}, true}, Case{kAtRank0, true}}) {
    Ends soft = over_soft_uc({}, {}, c.session), tcp = over_tcp(c.session);
    EXPECT_EQ(send_one(soft), c.fails ? kFails : "");
    EXPECT_EQ(send_one(tcp), c.fails ? kFails : "");
  }
}

TEST(Authenticated, a_message_for_another_place_ends_the_pair) {
  Ends right = over_soft_uc(), wrong = over_soft_uc();
  EXPECT_EQ(send_one(right, 9, 9), "");
  EXPECT_EQ(send_one(wrong, 9, 10), kFails);
}

TEST(Authenticated, the_pair_stays_ended) {
  Ends ends = over_soft_uc();
  EXPECT_EQ(send_one(ends, 1, 2), kFails);
  std::vector<std::byte> in(10), out(10);
  post_receive(ends.b, 2, in);
  post_send(ends.a, 2, out);
  EXPECT_TRUE(poll(ends.b).empty());
}

TEST(Authenticated, any_bit_that_the_link_flips_ends_the_pair) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    SoftUcOptions flipping = with({.kind = Fault::kFlipByte});
    flipping.seed = seed;
    Ends ends = over_soft_uc(flipping);
    ASSERT_EQ(send_one(ends), kFails) << seed;
  }
}

// Every bit of a message that is sent over TCP, the frame's header apart, which the pair below checks.
TEST(Authenticated, any_bit_that_is_flipped_on_a_tcp_connection_ends_the_pair) {
  auto [tap, tapped] = stream_pair();
  AuthenticatedQueuePair sender(std::make_unique<TcpQueuePair>(std::move(tapped), 1), kAtRank0, 100);
  std::vector<std::byte> out = pattern(20, 3), frame(32 + 20 + 16);
  post_send(sender, 1, out, 0, 7);
  ASSERT_EQ(::recv(tap.get(), frame.data(), frame.size(), MSG_WAITALL), static_cast<ssize_t>(frame.size()));
  for (size_t bit = 0; bit <= frame.size() * 8; ++bit) {
    auto [raw, end] = stream_pair();
    AuthenticatedQueuePair receiver(std::make_unique<TcpQueuePair>(std::move(end), 1), kAtRank1, 100);
    std::vector<std::byte> changed = frame, in(20);
    if (bit < frame.size() * 8) changed[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    const bool in_reserved_word = bit / 8 >= 28 && bit / 8 < 32;  // of the header: nobody reads it
    post_receive(receiver, 1, in);
    ASSERT_EQ(::send(raw.get(), changed.data(), changed.size(), 0), static_cast<ssize_t>(changed.size()));
    raw.reset();
    const Ids received = received_ids(receiver);
    if (bit == frame.size() * 8 || in_reserved_word) {
      EXPECT_EQ(received, Ids{1});
      EXPECT_EQ(in, out);
      continue;
    }
    EXPECT_EQ(received, Ids{}) << bit;
    EXPECT_NE(receiver.failure(), "") << bit;
    EXPECT_EQ(in, std::vector<std::byte>(20)) << bit;
    if (bit / 8 >= 32 || (bit / 8 >= 24 && bit / 8 < 28)) {  // payload, proof, tag
      EXPECT_EQ(receiver.failure(), kFails) << bit;
    }
  }
}

// Three messages towards three receives, of which the link loses, repeats or swaps one: what arrives before is right,
// and nothing after.
TEST(Authenticated, lost_repeated_and_swapped_messages_end_the_pair) {
  struct Case {
    Fault fault;
    uint64_t first, arrive;
  };
  for (const Case& c :
       {Case{Fault::kDropMessage, 2, 1}, Case{Fault::kRepeatMessage, 1, 1}, Case{Fault::kRepeatMessage, 2, 2},
        Case{Fault::kSwapMessages, 1, 0}, Case{Fault::kSwapMessages, 2, 1}}) {
    Ends ends = over_soft_uc(with({.kind = c.fault, .first = c.first}));
    std::vector<std::byte> in(3), out(3);
    for (uint64_t id = 1; id <= 3; ++id) post_receive(ends.b, id, std::span(in).subspan(id - 1, 1));
    for (uint64_t id = 1; id <= 3; ++id) {
      out[id - 1] = static_cast<std::byte>(id);
      post_send(ends.a, id, std::span(out).subspan(id - 1, 1));
    }
    EXPECT_EQ(received_ids(ends.b).size(), c.arrive);
    EXPECT_EQ(ends.b.failure(), kFails);
    for (uint64_t id = 1; id <= 3; ++id) EXPECT_EQ(in[id - 1], id <= c.arrive ? out[id - 1] : std::byte{0});
  }
}

TEST(Authenticated, a_recorded_session_is_refused_in_the_next) {
  auto [tap, tapped] = stream_pair();
  AuthenticatedQueuePair sender(std::make_unique<TcpQueuePair>(std::move(tapped), 1), kAtRank0, 100);
  std::vector<std::byte> out = pattern(20, 3), in(20), frame(32 + 20 + 16);
  post_send(sender, 1, out);
  ASSERT_EQ(::recv(tap.get(), frame.data(), frame.size(), MSG_WAITALL), static_cast<ssize_t>(frame.size()));
  auto [raw, end] = stream_pair();
  AuthenticatedQueuePair next(std::make_unique<TcpQueuePair>(std::move(end), 1), {kOtherKey, 1, 1, 0}, 100);
  post_receive(next, 1, in);
  ASSERT_EQ(::send(raw.get(), frame.data(), frame.size(), 0), static_cast<ssize_t>(frame.size()));
  EXPECT_TRUE(poll(next).empty());
  EXPECT_EQ(next.failure(), kFails);
}

TEST(Authenticated, a_pair_without_authentication_is_refused) {
  auto [one, other] = stream_pair();
  TcpQueuePair bare(std::move(one), 1);
  AuthenticatedQueuePair pair(std::make_unique<TcpQueuePair>(std::move(other), 1), kAtRank1, 100);
  std::vector<std::byte> out(10), in(100);
  post_receive(pair, 1, in);
  post_send(bare, 1, out);
  EXPECT_TRUE(poll(pair).empty());
  EXPECT_EQ(pair.failure(), kFails) << "10 bytes are less than a proof";
}

TEST(Authenticated, unsignaled_sends_are_not_told_whatever_the_device_does) {
  for (const bool all : {false, true}) {
    const SoftUcOptions options{.completes_unsignaled = all};
    Ends ends = over_soft_uc(options, options);
    EXPECT_FALSE(ends.a.limits().completes_unsignaled);
    std::vector<std::byte> out(10);
    const WorkRequest chain[2] = {{.id = 1, .data = out.data(), .bytes = 10, .signaled = false},
                                  {.id = 2, .data = out.data(), .bytes = 10}};
    ends.a.post_send(chain);
    EXPECT_EQ(sent_ids(ends.a), Ids{2});
  }
}

TEST(Authenticated, limits_leave_room_for_the_proof) {
  SoftUcOptions plain;
  plain.max_message_bytes = 16'384;
  plain.max_posted_bytes = 1 << 20;
  const QueuePairLimits limits = over_soft_uc(plain).b.limits();
  EXPECT_EQ(limits.max_message_bytes, 16'384u - 16u);
  EXPECT_EQ(limits.receive_depth, 512);
  EXPECT_EQ(limits.max_posted_bytes, (1u << 20) - 512 * 16);
  EXPECT_TRUE(limits.loses_unposted);

  const QueuePairLimits apple = over_soft_uc(apple_uc_options()).b.limits();
  EXPECT_EQ(apple.max_message_bytes, 16'384u - 24u);
  EXPECT_EQ(apple.frame_bytes, 4096u);
  EXPECT_EQ(apple.receive_depth, 504) << "frames, half of what 63 * 64 KiB hold";

  const QueuePairLimits tcp = over_tcp().b.limits();
  EXPECT_EQ(tcp.max_message_bytes, kSlotBytes);
  EXPECT_EQ(tcp.receive_depth, TcpQueuePair::kMaxOutstanding);
  EXPECT_TRUE(tcp.carries_tags);
  EXPECT_STREQ(over_tcp().a.name(), "tcp, authenticated");
}

// All that the limits allow can be posted, whatever its sizes: nothing below aborts.
TEST(Authenticated, what_the_limits_allow_fits_the_pair_below) {
  SoftUcOptions few_bytes, few_frames = apple_uc_options();
  few_bytes.max_posted_bytes = 300'000;
  few_frames.send_depth = few_frames.receive_depth = 64;
  for (const SoftUcOptions& options : {SoftUcOptions{}, few_bytes, apple_uc_options(), few_frames}) {
    for (const size_t bytes : {0u, 1u, 100u, 4072u, 4096u, 4097u, 12'288u, 16'360u}) {
      Ends ends = over_soft_uc(options, options);
      const QueuePairLimits& limits = ends.b.limits();
      const size_t frames = frames_of(limits, bytes);
      const size_t by_depth = static_cast<size_t>(limits.receive_depth) / frames;
      const size_t count = bytes == 0 ? by_depth : std::min(by_depth, limits.max_posted_bytes / bytes);
      std::vector<std::byte> in(bytes);
      for (size_t id = 1; id <= count; ++id) post_receive(ends.b, id, in);
      const size_t sends = static_cast<size_t>(limits.send_depth) / frames;
      for (size_t id = 1; id <= sends; ++id) post_send(ends.a, id, in);
      EXPECT_EQ(ends.a.failure() + ends.b.failure(), "");
    }
  }
}

// Where frames are counted: every pair of lengths of equally many frames, and no other, meets.
TEST(Authenticated, lengths_of_equally_many_frames_meet) {
  const std::vector<size_t> lengths = {0, 1, 4071, 4072, 4073, 4096, 4097, 8192, 8193, 12'288, 12'289, 16'360};
  for (const size_t sent : lengths) {
    for (const size_t posted : lengths) {
      Ends ends = over_soft_uc(SoftUcOptions{.max_message_bytes = 16'384, .frame_bytes = 4096},
                               SoftUcOptions{.max_message_bytes = 16'384, .frame_bytes = 4096});
      if (frames_of(ends.a.limits(), sent) != frames_of(ends.a.limits(), posted)) continue;
      std::vector<std::byte> out = pattern(sent, 1), in(posted);
      post_receive(ends.b, 1, in);
      post_send(ends.a, 1, out);
      const auto told = poll(ends.b);
      if (sent > posted) {  // more than there is room for
        EXPECT_TRUE(told.empty());
        EXPECT_EQ(ends.b.failure(), kFails);
        EXPECT_EQ(in, std::vector<std::byte>(posted));
        continue;
      }
      ASSERT_EQ(told.size(), 1u) << sent << " in " << posted << ": " << ends.b.failure();
      EXPECT_EQ(told[0].status, 0u);
      EXPECT_EQ(told[0].bytes, sent);
      EXPECT_TRUE(std::equal(out.begin(), out.end(), in.begin()));
    }
  }
}

TEST(Authenticated, completions_that_are_not_the_next_one_end_the_pair) {
  struct Case {
    Fault fault;
    const char* failure;
  };
  for (const Case& c :
       {Case{Fault::kDuplicateCompletion, "is not reached: the device completed receive 1 where 2 comes"},
        Case{Fault::kLoseCompletion, "is not reached: the device completed receive 2 where 1 comes"},
        Case{Fault::kWrongId, "is not reached: the device completed receive 3 where 1 comes"},
        Case{Fault::kWrongLength, kFails}, Case{Fault::kBadStatus, "is not reached: a completion has status 21"}}) {
    Ends ends = over_soft_uc(with({.kind = c.fault}));
    std::vector<std::byte> in(30), out(10);
    for (uint64_t id = 1; id <= 3; ++id) post_receive(ends.b, id, std::span(in).subspan((id - 1) * 10, 10));
    for (uint64_t id = 1; id <= 3; ++id) post_send(ends.a, id, out);
    received_ids(ends.b);
    EXPECT_EQ(ends.b.failure(), c.failure);
  }
}

// A device that reads bytes late meets no slot that is in use again, while fewer messages are unconfirmed than slots.
TEST(Authenticated, early_completions_change_no_message) {
  const SoftUcOptions early{.completes_sends_early = true};
  Ends ends = over_soft_uc({}, early);
  std::vector<std::byte> out(100), in(200);
  for (uint64_t id = 1; id <= 2000; id += 2) {
    for (const uint64_t each : {id, id + 1}) post_receive(ends.b, each, std::span(in).subspan((each & 1) * 100, 100));
    for (const uint64_t each : {id, id + 1}) {  // the second is posted before the first has left
      std::ranges::fill(out, static_cast<std::byte>(each));
      post_send(ends.a, each, out);
      Completion told;
      ASSERT_EQ(ends.a.poll({&told, 1}), 1);
      std::ranges::fill(out, std::byte{0});  // the caller's buffer is its own again
    }
    poll(ends.a);
    ASSERT_EQ(received_ids(ends.b), (Ids{id, id + 1})) << ends.b.failure();
    for (const uint64_t each : {id, id + 1}) ASSERT_EQ(in[(each & 1) * 100 + 99], static_cast<std::byte>(each));
  }
}

TEST(Authenticated, random_messages_end_the_pair_and_harm_nobody) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 400; ++round) {
    const bool framed = round % 2 == 1;
    const SoftUcOptions options = framed ? apple_uc_options() : SoftUcOptions{};
    auto [one, other] = stream_pair();
    auto bare = soft_end(std::move(one), SoftUcOptions{});
    std::vector<std::byte> memory(8192), in(4096);
    bare->register_memory(memory);
    AuthenticatedQueuePair pair(soft_end(std::move(other), options), kAtRank1, 4096);
    post_receive(pair, 1, in);
    for (std::byte& byte : memory) byte = static_cast<std::byte>(random());
    const size_t bytes = framed ? 4097 + random() % 4096 : random() % 4112;
    if (framed && round % 3 == 0) {  // a length that may do harm
      const uint64_t length = round % 4 == 1 ? random() : random() % 9000;
      std::memcpy(memory.data() + bytes - 24, &length, sizeof length);
    }
    post_send(*bare, 1, std::span(memory).first(bytes));
    EXPECT_TRUE(poll(pair).empty());
    EXPECT_EQ(pair.failure(), kFails);
    EXPECT_EQ(in, std::vector<std::byte>(4096));
  }
}

TEST(Authenticated, two_processes_exchange_messages) {
  auto [mine, yours] = stream_pair();
  const auto exchange = [](UniqueFd socket, const Session& session) {
    AuthenticatedQueuePair pair(std::make_unique<TcpQueuePair>(std::move(socket), 1), session, 20'480);
    std::vector<std::byte> in(20'480);
    for (uint64_t n = 1; n <= 500; ++n) {
      std::vector<std::byte> out = pattern(20'480, 2 * n + static_cast<uint64_t>(session.rank));
      const std::vector<std::byte> expected = pattern(20'480, 2 * n + static_cast<uint64_t>(session.peer));
      post_receive(pair, n, in, n);
      post_send(pair, n, out, n);
      const int64_t end_us = now_us() + 20'000'000;
      for (bool sent = false, received = false; !sent || !received;) {
        for (const Completion& completion : poll(pair)) {
          (completion.kind == Completion::Kind::kSend ? sent : received) = true;
        }
        if (!pair.failure().empty()) return pair.failure();
        if (now_us() > end_us) return fmt::format("message {} does not come", n);
      }
      if (in != expected) return fmt::format("message {} is wrong", n);
    }
    return std::string();
  };
  const pid_t child = ::fork();
  if (child == 0) {
    mine.reset();
    const std::string wrong = exchange(std::move(yours), kAtRank1);
    std::fputs(wrong.c_str(), stderr);
    ::_exit(wrong.empty() ? 0 : 1);
  }
  yours.reset();
  EXPECT_EQ(exchange(std::move(mine), kAtRank0), "");
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Authenticated, memory_that_the_device_refuses_is_an_error) {
  SoftUcOptions refusing;
  refusing.refuses_memory = [](std::span<const std::byte>) { return true; };
  try {
    over_soft_uc(refusing);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).substr(0, 15), "soft UC refuses");
  }
}

TEST(AuthenticatedDeathTest, more_than_the_limits_is_a_broken_invariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Ends ends = over_tcp();
  std::vector<std::byte> memory(kSlotBytes + 1);
  EXPECT_DEATH(post_send(ends.a, 1, memory), "65537 bytes in one message of at most 65536");
  for (int i = 0; i < TcpQueuePair::kMaxOutstanding; ++i) post_receive(ends.b, 1, {});
  EXPECT_DEATH(post_receive(ends.b, 1, {}), "all slots are taken");
}

}  // namespace
}  // namespace coprime
