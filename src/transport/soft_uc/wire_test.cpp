// The socket under a software queue pair: two processes, bytes from elsewhere, and long runs.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/testing.h"
#include "transport/soft_uc/testing.h"

namespace coprime {
namespace {

using testing::poll, testing::post_receive, testing::post_send, testing::received_ids, testing::SoftUcEnds,
    testing::stream_pair;

// One end over a socket whose other end the test holds.
struct LoneEnd {
  explicit LoneEnd(const SoftUcOptions& options = {}) : memory(1 << 20) {
    auto [end, other] = stream_pair();
    raw = std::move(other);
    pair = connect_soft_uc(std::make_shared<SoftUcDevice>(options), std::move(end));
    pair->register_memory(memory);
  }
  void inject(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(raw.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  UniqueFd raw;
  std::unique_ptr<SoftUcQueuePair> pair;
  std::vector<std::byte> memory;
};

// A frame as the wire has it.
std::vector<std::byte> frame(uint64_t number, uint32_t bytes, int64_t sent_us = 0, uint32_t magic = 0x55544653) {
  std::vector<std::byte> all(32 + bytes, std::byte{7});
  std::memcpy(all.data(), &magic, 4);
  std::memcpy(all.data() + 4, &bytes, 4);
  std::memcpy(all.data() + 8, &number, 8);
  std::memcpy(all.data() + 16, &sent_us, 8);
  return all;
}

TEST(SoftUcWire, frames_that_are_not_the_next_one_end_the_pair_before_they_are_used) {
  struct Case {
    std::vector<std::byte> bytes;
    const char* failure;
  };
  for (const Case& c : {Case{frame(1, 50), ""}, Case{frame(2, 50), "sent message 2 where message 1 comes"},
                        Case{frame(1, 101), "sent 101 bytes in one message where at most 100 are allowed"},
                        Case{frame(1, 50, 0, 0x20544547), "sent what is no message (it begins with 0x20544547)"}}) {
    LoneEnd end(SoftUcOptions{.max_message_bytes = 100});
    post_receive(*end.pair, 1, std::span(end.memory).first(100));
    end.inject(c.bytes);
    EXPECT_EQ(poll(*end.pair).empty(), c.failure[0] != 0);
    EXPECT_EQ(end.pair->failure(), c.failure);
    EXPECT_EQ(end.memory[0] != std::byte{0}, c.failure[0] == 0);
  }
}

TEST(SoftUcWire, a_message_that_finds_no_room_at_first_keeps_its_number) {
  auto [near, far] = testing::stream_pair();
  const std::vector<std::byte> payload(1000);
  MessageStream sender(std::move(near), payload.size()), receiver(std::move(far), payload.size());
  int sent = 0, received = 0;
  while (sender.send(payload, 0)) ++sent;
  EXPECT_FALSE(sender.send(payload, 0));
  bool last = false;
  for (int looks = 0; received <= sent && looks < 100'000; ++looks) {
    if (!last) last = sender.send(payload, 0);
    if (receiver.receive()) ++received;
  }
  EXPECT_EQ(received, sent + 1) << receiver.failure();
}

TEST(SoftUcWire, a_frame_cut_anywhere_is_put_together) {
  const auto bytes = frame(1, 300);
  for (size_t cut = 1; cut < bytes.size(); ++cut) {
    LoneEnd end;
    post_receive(*end.pair, 1, std::span(end.memory).first(300));
    end.inject(std::span(bytes).first(cut));
    EXPECT_TRUE(poll(*end.pair).empty());
    end.inject(std::span(bytes).subspan(cut));
    EXPECT_EQ(received_ids(*end.pair).size(), 1u) << cut;
  }
}

TEST(SoftUcWire, a_time_that_the_peer_invents_delays_nothing) {
  SoftUcOptions options;
  options.delay = {.base_us = 1};
  for (const int64_t sent_us : {INT64_MIN, INT64_MAX, now_us() + 3'600'000'000}) {
    LoneEnd end(options);
    post_receive(*end.pair, 1, std::span(end.memory).first(1));
    end.inject(frame(1, 1, sent_us));
    const int64_t end_us = now_us() + 2'000'000;
    while (received_ids(*end.pair).empty()) ASSERT_LT(now_us(), end_us);
  }
}

TEST(SoftUcWire, random_bytes_end_the_pair_and_harm_nobody) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    SoftUcOptions options;
    options.max_message_bytes = 4096;
    if (round % 2 == 1) options.faults = {{.kind = SoftUcFault::Kind::kFlipByte, .every = 1}};
    LoneEnd end(options);
    for (uint64_t id = 1; id <= 4; ++id) post_receive(*end.pair, id, std::span(end.memory).subspan(id * 4096, 4096));
    std::vector<std::byte> bytes;
    if (round % 3 == 0) bytes = frame(1, 100);  // something right first
    if (round % 5 == 0) bytes = frame(1, static_cast<uint32_t>(random()) % 5000 + 1);
    const size_t right = bytes.size();
    bytes.resize(right + 4096 * 2);
    for (size_t i = right; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(random());
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min<size_t>(bytes.size() - at, random() % 2000 + 1);
      end.inject(std::span(bytes).subspan(at, count));
      at += count;
      poll(*end.pair);
    }
    EXPECT_NE(end.pair->failure(), "");
  }
}

// What one end of a steady exchange does, as gates do: two receives are posted ahead, every message is checked before
// its receive is posted again, and nobody leads by more than one message. The stream beside the pair orders the first
// receives before the first sends. Empty, or what went wrong.
std::string exchange_steadily(UniqueFd wire, UniqueFd beside, const SoftUcOptions& options, uint64_t messages,
                              size_t bytes) {
  auto pair = connect_soft_uc(std::make_shared<SoftUcDevice>(options), std::move(wire));
  std::vector<std::byte> memory(4 * bytes);
  pair->register_memory(memory);
  const auto in = [&](uint64_t n) { return std::span(memory).subspan((n & 1) * bytes, bytes); };
  const auto out = [&](uint64_t n) { return std::span(memory).subspan((2 + (n & 1)) * bytes, bytes); };
  const auto value = [](uint64_t n) { return static_cast<std::byte>(n * 37 + n / 256); };
  post_receive(*pair, 1, in(1));
  post_receive(*pair, 2, in(2));
  std::byte ready{};
  if (::send(beside.get(), &ready, 1, 0) != 1 || ::recv(beside.get(), &ready, 1, 0) != 1) return "no barrier";
  uint64_t received = 0, polls = 0;
  for (uint64_t n = 1; n <= messages; ++n) {
    std::ranges::fill(out(n), value(n));
    post_send(*pair, n, out(n));
    for (int64_t end_us = now_us() + 10'000'000; received < n;) {
      for (const Completion& completion : poll(*pair)) {
        if (completion.kind == Completion::Kind::kReceive) received = completion.id;
      }
      if (received >= n) break;
      if (!pair->failure().empty()) return pair->failure();
      if (now_us() > end_us) return fmt::format("message {} does not come", n);
      if (++polls % 4 == 0) ::sched_yield();
    }
    if (std::ranges::count(in(n), value(n)) != static_cast<std::ptrdiff_t>(bytes)) return fmt::format("{} is wrong", n);
    post_receive(*pair, n + 2, in(n));
  }
  while (!poll(*pair).empty()) continue;  // early sends leave
  poll(*pair);
  return "";
}

TEST(SoftUcWire, two_processes_exchange_messages_both_ways) {
  for (const SoftUcOptions& options : {SoftUcOptions{}, apple_uc_options()}) {
    auto [mine, yours] = stream_pair();
    auto [beside_me, beside_you] = stream_pair();
    const pid_t child = ::fork();
    if (child == 0) {
      mine.reset(), beside_me.reset();
      const std::string wrong = exchange_steadily(std::move(yours), std::move(beside_you), options, 2000, 16'384);
      std::fputs(wrong.c_str(), stderr);
      ::_exit(wrong.empty() ? 0 : 1);
    }
    yours.reset(), beside_you.reset();
    EXPECT_EQ(exchange_steadily(std::move(mine), std::move(beside_me), options, 2000, 16'384), "");
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(SoftUcWire, a_killed_process_falls_silent_and_nothing_else) {
  auto [mine, yours] = stream_pair();
  auto [beside_me, beside_you] = stream_pair();
  auto pair = connect_soft_uc(std::make_shared<SoftUcDevice>(SoftUcOptions{}), std::move(mine));
  std::vector<std::byte> memory(100);
  pair->register_memory(memory);
  post_receive(*pair, 1, memory);
  post_receive(*pair, 2, memory);
  const pid_t child = ::fork();
  if (child == 0) {
    auto peer = connect_soft_uc(std::make_shared<SoftUcDevice>(SoftUcOptions{}), std::move(yours));
    peer->register_memory(memory);
    post_send(*peer, 1, memory);
    if (::send(beside_you.get(), "s", 1, 0) != 1) ::_exit(1);
    while (true) ::pause();
  }
  yours.reset(), beside_you.reset();
  char sent = 0;
  EXPECT_EQ(::recv(beside_me.get(), &sent, 1, 0), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(received_ids(*pair), std::vector<uint64_t>{1});
  post_send(*pair, 1, memory);
  EXPECT_EQ(testing::sent_ids(*pair), std::vector<uint64_t>{1});
  EXPECT_EQ(pair->failure(), "");
}

class SoftUcSoak : public ::testing::TestWithParam<const char*> {};

TEST_P(SoftUcSoak, long_exchanges_arrive_whole_and_in_order) {
  const std::string mode = GetParam();
  SoftUcOptions options = mode.starts_with("apple") ? apple_uc_options() : SoftUcOptions{};
  uint64_t messages = 10'000;
  if (mode.ends_with("delayed")) {
    options.delay = {.base_us = 5, .jitter_us = 200, .stall_every = 1000, .stall_us = 5000};
    messages = 1'000;
  }
  messages = messages * static_cast<uint64_t>(testing::soak_percent()) / 100;
  auto [one, other] = stream_pair();
  auto [beside_one, beside_other] = stream_pair();
  std::string wrong;
  std::thread peer([&] {
    SoftUcOptions skewed = options;
    skewed.delay.base_us *= 10;
    skewed.seed = 2;
    wrong = exchange_steadily(std::move(other), std::move(beside_other), skewed, messages, 1000);
  });
  EXPECT_EQ(exchange_steadily(std::move(one), std::move(beside_one), options, messages, 1000), "");
  peer.join();
  EXPECT_EQ(wrong, "");
}

INSTANTIATE_TEST_SUITE_P(All, SoftUcSoak, ::testing::Values("strict", "apple", "strict_delayed", "apple_delayed"),
                         [](const auto& mode) { return mode.param; });

}  // namespace
}  // namespace coprime
