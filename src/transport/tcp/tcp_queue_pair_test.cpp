#include "transport/tcp/tcp_queue_pair.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>

#include "base/clock.h"
#include "transport/testing.h"

namespace coprime {
namespace {

using testing::pattern;
using testing::stream_pair;

constexpr size_t kHeadroom = 64;

// Two ends in one thread: whatever one of them does must not wait for the other.
struct Ends {
  explicit Ends(uint32_t epoch_a = 1, uint32_t epoch_b = 1) : Ends(stream_pair(), epoch_a, epoch_b) {}
  Ends(std::pair<UniqueFd, UniqueFd> sockets, uint32_t epoch_a, uint32_t epoch_b)
      : a(std::make_unique<TcpQueuePair>(std::move(sockets.first), epoch_a)),
        b(std::make_unique<TcpQueuePair>(std::move(sockets.second), epoch_b)) {}
  std::unique_ptr<TcpQueuePair> a, b;
};

// The first `headroom` bytes of the buffer are room for a header.
void receive(QueuePair& pair, uint64_t id, std::vector<std::byte>& buffer, size_t headroom = 0) {
  const WorkRequest request = {
      .id = id, .data = buffer.data() + headroom, .bytes = buffer.size() - headroom, .headroom = headroom};
  pair.post_recv({&request, 1});
}

void send(QueuePair& pair, uint64_t id, std::vector<std::byte>& buffer, uint32_t tag = 0) {
  const WorkRequest request = {.id = id, .data = buffer.data(), .bytes = buffer.size(), .tag = tag};
  pair.post_send({&request, 1});
}

std::vector<Completion> poll(QueuePair& pair) {
  std::array<Completion, 64> completions;
  const int count = pair.poll(completions);
  return {completions.begin(), completions.begin() + count};
}

TEST(TcpQueuePair, a_message_lands_in_the_posted_receive_with_its_tag) {
  Ends ends;
  std::vector<std::byte> out = pattern(1000, 1), in(4096);
  receive(*ends.b, 1, in);
  send(*ends.a, 1, out, 77);
  const auto sent = poll(*ends.a), received = poll(*ends.b);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].kind, Completion::Kind::kSend);
  EXPECT_EQ(sent[0].id, 1u);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].kind, Completion::Kind::kReceive);
  EXPECT_EQ(received[0].bytes, 1000u);
  EXPECT_EQ(received[0].tag, 77u);
  EXPECT_EQ(std::memcmp(in.data(), out.data(), 1000), 0);
  EXPECT_EQ(in[1000], std::byte{0});
}

TEST(TcpQueuePair, messages_of_all_sizes_arrive_in_order) {
  Ends ends;
  const std::vector<size_t> sizes = {0, 1, 4, 31, 32, 33, 65535, 65536, 65537, 200'000, 0, 7, 1'000'003};
  uint64_t id = 0;
  for (const size_t bytes : sizes) {
    ++id;
    std::vector<std::byte> out = pattern(bytes, id), in(bytes);
    receive(*ends.b, id, in);
    send(*ends.a, id, out);
    bool sent = false, received = false;
    while (!(sent && received)) {
      for (const Completion& completion : poll(*ends.a)) sent |= completion.id == id;
      for (const Completion& completion : poll(*ends.b)) received |= completion.id == id && completion.bytes == bytes;
      ASSERT_EQ(ends.a->failure() + ends.b->failure(), "");
    }
    EXPECT_EQ(in, out) << bytes;
  }
}

TEST(TcpQueuePair, messages_between_slots_with_headroom_arrive_in_order) {
  Ends ends;
  uint64_t id = 0;
  for (const size_t bytes : {0, 1, 4, 31, 32, 33, 16384, 65503, 65504, 65505, 65536, 200'000, 0, 1'000'003}) {
    for (const size_t room : {bytes, bytes + 1, bytes + 70'000}) {
      ++id;
      std::vector<std::byte> out = pattern(kHeadroom + bytes, id), in(kHeadroom + room);
      const std::vector<std::byte> expected(out.begin() + kHeadroom, out.end());
      receive(*ends.b, id, in, kHeadroom);
      const WorkRequest request = {
          .id = id, .data = out.data() + kHeadroom, .bytes = bytes, .headroom = kHeadroom, .tag = 5};
      ends.a->post_send({&request, 1});
      bool sent = false, received = false;
      while (!(sent && received)) {
        for (const Completion& completion : poll(*ends.a)) sent |= completion.id == id;
        for (const Completion& completion : poll(*ends.b))
          received |= completion.id == id && completion.bytes == bytes && completion.tag == 5;
        ASSERT_EQ(ends.a->failure() + ends.b->failure(), "");
      }
      EXPECT_TRUE(std::ranges::equal(std::span(in).subspan(kHeadroom, bytes), expected)) << bytes << " in " << room;
    }
  }
}

// Both send far more than the socket holds before either reads.
TEST(TcpQueuePair, large_messages_both_ways_do_not_block) {
  Ends ends;
  constexpr size_t kBytes = 16'000'000;
  std::vector<std::byte> out_a = pattern(kBytes, 1), out_b = pattern(kBytes, 2), in_a(kBytes), in_b(kBytes);
  receive(*ends.a, 1, in_a);
  receive(*ends.b, 1, in_b);
  send(*ends.a, 1, out_a);
  send(*ends.b, 1, out_b);
  size_t completions = 0;
  while (completions < 4) {
    completions += poll(*ends.a).size() + poll(*ends.b).size();
    ASSERT_EQ(ends.a->failure() + ends.b->failure(), "");
  }
  EXPECT_EQ(in_a, out_b);
  EXPECT_EQ(in_b, out_a);
}

TEST(TcpQueuePair, several_messages_in_one_read_are_told_apart) {
  Ends ends;
  std::vector<std::vector<std::byte>> in(5, std::vector<std::byte>(100));
  for (uint64_t id = 1; id <= 5; ++id) {
    std::vector<std::byte> out = pattern(20 * id, id);
    send(*ends.a, id, out);
  }
  for (uint64_t id = 1; id <= 5; ++id) receive(*ends.b, id, in[id - 1]);
  const auto received = poll(*ends.b);
  ASSERT_EQ(received.size(), 5u);
  for (uint64_t id = 1; id <= 5; ++id) {
    EXPECT_EQ(received[id - 1].id, id);
    EXPECT_EQ(received[id - 1].bytes, 20 * id);
    EXPECT_EQ(std::memcmp(in[id - 1].data(), pattern(20 * id, id).data(), 20 * id), 0);
  }
}

TEST(TcpQueuePair, messages_cut_anywhere_are_put_together) {
  // The bytes of three messages, as one end sends them.
  auto [tap, sending_end] = stream_pair();
  TcpQueuePair sender(std::move(sending_end), 1);
  std::vector<std::vector<std::byte>> out = {pattern(100, 1), pattern(1000, 2), pattern(70'000, 3)};
  for (uint64_t id = 1; id <= 3; ++id) send(sender, id, out[id - 1]);
  std::vector<std::byte> stream(3 * 32 + 71'100);
  ASSERT_EQ(::recv(tap.get(), stream.data(), stream.size(), MSG_WAITALL), static_cast<ssize_t>(stream.size()));

  for (const size_t piece : {1u, 7u, 31u, 33u, 90u, 140u, 1100u, 30'000u, 1001u, 7007u}) {
    const size_t headroom = piece % 2 == 0 || piece % 7 == 0 ? kHeadroom : 0;
    auto [raw, end] = stream_pair();
    TcpQueuePair pair(std::move(end), 1);
    std::vector<std::vector<std::byte>> in = {std::vector<std::byte>(headroom + 200),
                                              std::vector<std::byte>(headroom + 2000),
                                              std::vector<std::byte>(headroom + 80'000)};
    for (uint64_t id = 1; id <= 3; ++id) receive(pair, id, in[id - 1], headroom);
    size_t received = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      const size_t count = std::min(piece, stream.size() - at);
      ASSERT_EQ(::send(raw.get(), stream.data() + at, count, 0), static_cast<ssize_t>(count));
      received += poll(pair).size();
      ASSERT_EQ(pair.failure(), "");
    }
    received += poll(pair).size() + poll(pair).size();  // a poll tells what it found first
    EXPECT_EQ(received, 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(std::memcmp(in[i].data() + headroom, out[i].data(), out[i].size()), 0)
          << "message " << i << " in pieces of " << piece;
    }
  }
}

TEST(TcpQueuePair, a_message_waits_for_a_posted_receive) {
  Ends ends;
  std::vector<std::byte> out = pattern(100, 1), in(100);
  send(*ends.a, 1, out);
  EXPECT_TRUE(poll(*ends.b).empty());
  EXPECT_EQ(ends.b->failure(), "");
  receive(*ends.b, 1, in);
  EXPECT_EQ(poll(*ends.b).size(), 1u);
  EXPECT_EQ(in, out);
}

TEST(TcpQueuePair, completions_beyond_the_room_are_told_later) {
  Ends ends;
  std::vector<std::byte> out(10), in(10);
  for (uint64_t id = 1; id <= 4; ++id) {
    receive(*ends.b, id, in);
    send(*ends.a, id, out);
  }
  std::array<Completion, 3> completions;
  EXPECT_EQ(ends.b->poll(completions), 3);
  EXPECT_EQ(ends.b->poll(completions), 1);
  EXPECT_EQ(completions[0].id, 4u);
}

TEST(TcpQueuePair, frames_that_do_not_fit_end_the_pair_before_they_are_used) {
  struct Refusal {
    uint32_t sent_epoch;
    size_t sent_bytes;
    const char* failure;
  };
  for (const Refusal& refusal : {Refusal{2, 100, "sent a message of epoch 2 in epoch 1"},
                                 Refusal{1, 101, "sent 101 bytes where there is room for 100"}}) {
    Ends ends(refusal.sent_epoch, 1);
    std::vector<std::byte> out = pattern(refusal.sent_bytes, 1), in(100);
    receive(*ends.b, 4, in);
    send(*ends.a, 4, out);
    EXPECT_TRUE(poll(*ends.b).empty());
    EXPECT_EQ(ends.b->failure(), refusal.failure);
    EXPECT_EQ(in, std::vector<std::byte>(100));
    EXPECT_TRUE(poll(*ends.b).empty());
  }
}

TEST(TcpQueuePair, a_replayed_or_skipped_message_ends_the_pair_before_it_is_used) {
  for (const bool replayed : {true, false}) {
    auto [raw, end] = stream_pair();
    auto [tap, sender_end] = stream_pair();
    TcpQueuePair sender(std::move(sender_end), 1), pair(std::move(end), 1);
    std::vector<std::byte> out = pattern(100, 1), in(100), frames(2 * 132);
    send(sender, 1, out);
    send(sender, 2, out);
    ASSERT_EQ(::recv(tap.get(), frames.data(), frames.size(), MSG_WAITALL), static_cast<ssize_t>(frames.size()));
    receive(pair, 1, in);
    const std::byte* const wrong = frames.data() + (replayed ? 0 : 132);
    if (replayed) {
      ASSERT_EQ(::send(raw.get(), frames.data(), 132, 0), 132);
      ASSERT_EQ(poll(pair).size(), 1u);
      std::ranges::fill(in, std::byte{0});
      receive(pair, 2, in);
    }
    ASSERT_EQ(::send(raw.get(), wrong, 132, 0), 132);
    EXPECT_TRUE(poll(pair).empty());
    EXPECT_EQ(pair.failure(),
              replayed ? "sent message 1 where message 2 comes" : "sent message 2 where message 1 comes");
    EXPECT_EQ(in, std::vector<std::byte>(100));
  }
}

TEST(TcpQueuePair, bytes_that_are_no_frame_end_the_pair) {
  auto [raw, end] = stream_pair();
  TcpQueuePair pair(std::move(end), 1);
  std::vector<std::byte> in(100);
  receive(pair, 1, in);
  const std::string text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(::send(raw.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_TRUE(poll(pair).empty());
  EXPECT_EQ(pair.failure(), "sent what is no gate's message (it begins with 0x20544547)");
}

TEST(TcpQueuePair, a_closed_peer_is_told_after_what_it_sent) {
  Ends ends;
  std::vector<std::byte> out = pattern(50, 1), in(100);
  receive(*ends.b, 1, in);
  receive(*ends.b, 2, in);
  send(*ends.a, 1, out);
  ends.a.reset();
  EXPECT_EQ(poll(*ends.b).size(), 1u);
  EXPECT_TRUE(poll(*ends.b).empty());
  EXPECT_EQ(ends.b->failure(), "closed the connection");
}

TEST(TcpQueuePair, a_peer_that_closes_before_it_took_all_is_told) {
  Ends ends;
  std::vector<std::byte> out = pattern(10'000'000, 1);
  send(*ends.a, 1, out);
  ends.b.reset();
  const int64_t end_us = now_us() + 5'000'000;
  while (ends.a->failure().empty() && now_us() < end_us) poll(*ends.a);
  EXPECT_EQ(ends.a->failure().find("closed the connection"), 0u) << ends.a->failure();
}

TEST(TcpQueuePair, asks_for_the_events_that_it_waits_for) {
  Ends ends;
  EXPECT_EQ(ends.a->wait_on().fd, -1);
  std::vector<std::byte> in(10), out(10'000'000);
  receive(*ends.a, 1, in);
  EXPECT_EQ(ends.a->wait_on().events, POLLIN);
  send(*ends.a, 1, out);
  EXPECT_EQ(ends.a->wait_on().events, POLLIN | POLLOUT);
}

TEST(TcpQueuePairDeathTest, more_requests_than_the_limit_are_a_broken_invariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Ends ends;
  std::vector<std::byte> in(10);
  for (int i = 1; i <= ends.a->limits().receive_depth; ++i) receive(*ends.a, static_cast<uint64_t>(i), in);
  EXPECT_DEATH(receive(*ends.a, 17, in), "16 requests are outstanding");
}

}  // namespace
}  // namespace coprime
