// Pairs over UCX's own transports of one host, each end in a thread of its own while it connects.
#include "transport/ucx/ucx_queue_pair.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <future>

#include "base/clock.h"
#include "base/error.h"
#include "transport/testing.h"

namespace coprime {
namespace {

using testing::pattern;
using testing::stream_pair;

constexpr int64_t kPatienceUs = 20'000'000;

std::string refusal(auto&& action) {
  try {
    action();
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
}

struct Ends {
  Ends() {
    auto [one, other] = stream_pair();
    auto second = std::async(std::launch::async, [&, socket = std::move(other)]() mutable {
      return connect_ucx(open_ucx(), std::move(socket), 1, 1, 0, 20'000);
    });
    a = connect_ucx(open_ucx(), std::move(one), 1, 0, 1, 20'000);
    b = second.get();
  }
  std::unique_ptr<QueuePair> a, b;
};

void receive(QueuePair& pair, uint64_t id, std::span<std::byte> buffer) {
  const WorkRequest request = {.id = id, .data = buffer.data(), .bytes = buffer.size()};
  pair.post_recv({&request, 1});
}

void send(QueuePair& pair, uint64_t id, std::span<std::byte> buffer, uint32_t tag = 0) {
  const WorkRequest request = {.id = id, .data = buffer.data(), .bytes = buffer.size(), .tag = tag};
  pair.post_send({&request, 1});
}

// Polls both ends until each has told so many completions, or a pair failed, or it takes too long.
std::array<std::vector<Completion>, 2> poll_both(Ends& ends, size_t of_a, size_t of_b) {
  std::array<std::vector<Completion>, 2> told;
  const int64_t end_us = now_us() + kPatienceUs;
  while ((told[0].size() < of_a || told[1].size() < of_b) && now_us() < end_us) {
    for (QueuePair* pair : {ends.a.get(), ends.b.get()}) {
      std::array<Completion, 3> completions;
      const int count = pair->poll(completions);
      auto& list = told[pair == ends.b.get()];
      list.insert(list.end(), completions.begin(), completions.begin() + count);
    }
    if (!ends.a->failure().empty() || !ends.b->failure().empty()) break;
    std::this_thread::yield();
  }
  return told;
}

void poll_until_failure(QueuePair& pair) {
  for (const int64_t end_us = now_us() + kPatienceUs; pair.failure().empty() && now_us() < end_us;) {
    std::array<Completion, 4> completions;
    pair.poll(completions);
    std::this_thread::yield();
  }
}

TEST(UcxQueuePair, a_message_lands_in_the_posted_receive_with_its_tag) {
  Ends ends;
  std::vector<std::byte> out = pattern(1000, 1), in(4096);
  receive(*ends.b, 7, in);
  send(*ends.a, 9, out, 0xfffffff0);
  const auto [sent, received] = poll_both(ends, 1, 1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].kind, Completion::Kind::kSend);
  EXPECT_EQ(sent[0].id, 9u);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].kind, Completion::Kind::kReceive);
  EXPECT_EQ(received[0].id, 7u);
  EXPECT_EQ(received[0].bytes, 1000u);
  EXPECT_EQ(received[0].tag, 0xfffffff0);
  EXPECT_EQ(std::memcmp(in.data(), out.data(), 1000), 0);
  EXPECT_EQ(in[1000], std::byte{0});
}

TEST(UcxQueuePair, messages_of_all_sizes_arrive_in_order) {
  Ends ends;
  uint64_t id = 0;
  for (const size_t bytes : {0, 1, 4, 31, 1024, 8191, 8192, 65535, 65536, 200'000, 0, 7, 1'000'003}) {
    ++id;
    std::vector<std::byte> out = pattern(bytes, id), in(bytes);
    receive(*ends.b, id, in);
    send(*ends.a, id, out);
    const auto [sent, received] = poll_both(ends, 1, 1);
    ASSERT_EQ(ends.a->failure() + ends.b->failure(), "");
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].bytes, bytes);
    EXPECT_EQ(in, out) << bytes;
  }
}

TEST(UcxQueuePair, large_messages_both_ways_do_not_block) {
  Ends ends;
  constexpr size_t kBytes = 16'000'000;
  std::vector<std::byte> out_a = pattern(kBytes, 1), out_b = pattern(kBytes, 2), in_a(kBytes), in_b(kBytes);
  receive(*ends.a, 1, in_a);
  receive(*ends.b, 1, in_b);
  send(*ends.a, 2, out_a);
  send(*ends.b, 2, out_b);
  poll_both(ends, 2, 2);
  EXPECT_EQ(ends.a->failure() + ends.b->failure(), "");
  EXPECT_EQ(in_a, out_b);
  EXPECT_EQ(in_b, out_a);
  EXPECT_GT(ends.a->bytes_moved(), 0u);
}

TEST(UcxQueuePair, messages_wait_for_their_receives) {
  Ends ends;
  constexpr uint64_t kMessages = UcxQueuePair::kMaxOutstanding;
  std::vector<std::vector<std::byte>> out, in(kMessages, std::vector<std::byte>(5000));
  for (uint64_t id = 0; id < kMessages; ++id) out.push_back(pattern(5000, id));
  for (uint64_t id = 0; id < kMessages; ++id) send(*ends.a, id, out[id], static_cast<uint32_t>(id));
  poll_both(ends, kMessages, 0);
  for (uint64_t id = 0; id < kMessages; ++id) receive(*ends.b, id, in[id]);
  const auto received = poll_both(ends, 0, kMessages)[1];
  ASSERT_EQ(received.size(), kMessages);
  for (uint64_t id = 0; id < kMessages; ++id) {
    EXPECT_EQ(received[id].id, id);
    EXPECT_EQ(received[id].tag, id);
    EXPECT_EQ(in[id], out[id]);
  }
}

// What was told complete has left, and needs nothing more of the sender: neither its message nor its word for the
// peer's. Each end polls only until it has what it waits for.
TEST(UcxQueuePair, an_end_that_has_all_need_not_poll_for_the_other) {
  Ends ends;
  uint64_t id = 0;
  for (const size_t bytes : {0, 64, 16'384, 65'536, 65'537, 1'000'000, 8'000'000}) {
    for (const auto& [first, second] : {std::pair{&ends.a, &ends.b}, std::pair{&ends.b, &ends.a}}) {
      ++id;
      std::vector<std::byte> out_1 = pattern(bytes, id), out_2 = pattern(bytes, id + 1), in_1(bytes), in_2(bytes);
      receive(**first, id, in_1);
      receive(**second, id, in_2);
      send(**first, id, out_1);
      send(**second, id, out_2);
      size_t of_first = 0, of_second = 0;
      const int64_t end_us = now_us() + kPatienceUs;
      std::array<Completion, 4> completions;
      while (of_first < 2 && now_us() < end_us) {
        of_first += static_cast<size_t>((*first)->poll(completions));
        if (of_second < 2) of_second += static_cast<size_t>((*second)->poll(completions));
      }
      while (of_second < 2 && now_us() < end_us) of_second += static_cast<size_t>((*second)->poll(completions));
      ASSERT_EQ(of_first + of_second, 4u) << bytes;
      EXPECT_TRUE(in_1 == out_2 && in_2 == out_1) << bytes;
    }
  }
}

// A short message leaves without a poll of the receiver.
TEST(UcxQueuePair, a_short_send_waits_for_nobody) {
  Ends ends;
  std::vector<std::byte> out = pattern(UcxQueuePair::kHeldBytes, 3), in(out.size());
  for (uint64_t id = 1; id <= 2; ++id) {
    send(*ends.a, id, out);
    std::array<Completion, 1> completions;
    for (const int64_t end_us = now_us() + kPatienceUs; ends.a->holds_sends() && now_us() < end_us;)
      ends.a->poll(completions);
    EXPECT_FALSE(ends.a->holds_sends());
  }
  for (uint64_t id = 1; id <= 2; ++id) {
    receive(*ends.b, id, in);
    bool arrived = false;
    std::array<Completion, 1> completions;
    for (const int64_t end_us = now_us() + kPatienceUs; !arrived && now_us() < end_us;)
      arrived = ends.b->poll(completions) == 1;
    EXPECT_TRUE(arrived);
    EXPECT_EQ(in, out);
  }
}

TEST(UcxQueuePair, a_message_longer_than_its_receive_ends_the_pair) {
  Ends ends;
  std::vector<std::byte> out = pattern(101, 1), in(100);
  receive(*ends.b, 1, in);
  send(*ends.a, 1, out);
  const auto received = poll_both(ends, 1, 1)[1];
  EXPECT_TRUE(received.empty());
  EXPECT_EQ(ends.b->failure(), "sent 101 bytes where there is room for 100");
  // It stays failed.
  send(*ends.b, 2, out);
  std::array<Completion, 4> completions;
  EXPECT_EQ(ends.b->poll(completions), 0);
}

TEST(UcxQueuePair, a_peer_that_leaves_is_told_after_its_last_message) {
  Ends ends;
  std::vector<std::byte> out = pattern(5000, 1), in(5000), never(10);
  send(*ends.a, 1, out);
  poll_both(ends, 1, 0);
  ends.a.reset();
  receive(*ends.b, 1, in);
  receive(*ends.b, 2, never);
  const int64_t begin_us = now_us();
  std::vector<uint64_t> ids;
  while (ends.b->failure().empty() && now_us() - begin_us < kPatienceUs) {
    std::array<Completion, 4> completions;
    const int count = ends.b->poll(completions);
    for (int i = 0; i < count; ++i) ids.push_back(completions[static_cast<size_t>(i)].id);
  }
  EXPECT_EQ(ids, std::vector<uint64_t>{1});
  EXPECT_EQ(in, out);
  EXPECT_EQ(ends.b->failure().find("closed the connection"), 0u) << ends.b->failure();
  EXPECT_LT(now_us() - begin_us, 5'000'000);
}

TEST(UcxQueuePair, a_killed_peer_is_told) {
  auto [one, other] = stream_pair();
  const pid_t child = ::fork();
  if (child == 0) {
    one.reset();
    const auto pair = connect_ucx(open_ucx(), std::move(other), 1, 1, 0, 20'000);
    std::array<Completion, 1> completions;
    while (true) pair->poll(completions);
  }
  other.reset();
  const auto pair = connect_ucx(open_ucx(), std::move(one), 1, 0, 1, 20'000);
  std::vector<std::byte> in(10);
  receive(*pair, 1, in);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const int64_t begin_us = now_us();
  poll_until_failure(*pair);
  EXPECT_EQ(pair->failure().find("closed the connection"), 0u) << pair->failure();
  EXPECT_LT(now_us() - begin_us, 5'000'000);
}

TEST(ConnectUcx, what_is_no_ucx_is_told) {
  EXPECT_EQ(refusal([] { open_ucx("/nonexistent/libucp.so"); }),
            "UCX does not load (/nonexistent/libucp.so: cannot open shared object file: No such file or directory): "
            "install libucx0");
  EXPECT_EQ(refusal([] { open_ucx("libm.so.6"); }),
            "libm.so.6 has no ucp_config_read: it is no libucp, or older than 1.13; install a newer one");
}

TEST(ConnectUcx, peers_that_close_say_nothing_or_something_else_are_told) {
  const auto connect = [](std::string_view said, bool closes) {
    auto [one, other] = stream_pair();
    EXPECT_EQ(::send(other.get(), said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
    if (closes) other.reset();
    return refusal(
        [&, socket = std::move(one)]() mutable { connect_ucx(open_ucx(), std::move(socket), 1, 0, 1, 200); });
  };
  EXPECT_EQ(connect("", false), "ucx link to rank 1: the peer says nothing; check that its process is alive");
  EXPECT_EQ(connect(std::string_view("UCXA\2\0\0\0\5\0\0\0hello", 17), false),
            "ucx link to rank 1: what came is no UCX address of rank 1 (magic 0x41584355, rank 2, 5 bytes): run the "
            "same program on both");
  EXPECT_NE(connect("", true).find("the peer closed the connection"), std::string::npos);
}

TEST(UcxQueuePairDeathTest, more_than_the_limits_are_broken_invariants) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        Ends ends;
        std::vector<std::byte> in(10);
        for (uint64_t id = 0; id <= UcxQueuePair::kMaxOutstanding; ++id) receive(*ends.a, id, in);
      },
      "16 requests are outstanding");
}

}  // namespace
}  // namespace coprime
