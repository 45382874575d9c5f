#include "transport/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

std::vector<std::byte> pattern(size_t bytes, uint32_t seed) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 2654435761u + seed) >> 13);
  return data;
}

std::pair<UniqueFd, UniqueFd> raw_pair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

TEST(Channel, messages_arrive_whole_and_in_order) {
  auto [front, rank] = Channel::make_pair();
  front.send(7, pattern(100, 1));
  front.send(8, {});
  front.send(9, pattern(3, 2));
  Message message;
  ASSERT_EQ(rank.receive(message, 1000), Channel::Received::kMessage);
  EXPECT_EQ(message.type, 7u);
  EXPECT_EQ(message.bytes, pattern(100, 1));
  ASSERT_EQ(rank.receive(message, 1000), Channel::Received::kMessage);
  EXPECT_EQ(message.type, 8u);
  EXPECT_TRUE(message.bytes.empty());
  ASSERT_EQ(rank.receive(message, 1000), Channel::Received::kMessage);
  EXPECT_EQ(message.bytes, pattern(3, 2));
}

TEST(Channel, large_messages_pass_both_ways_at_once) {
  auto [front, rank] = Channel::make_pair();
  const std::vector<std::byte> down = pattern(5'000'000, 1), up = pattern(7'000'000, 2);
  std::thread front_sends([&] { front.send(1, down); });
  std::thread rank_sends([&] { rank.send(2, up); });
  Message at_front, at_rank;
  std::thread front_receives([&] { EXPECT_EQ(front.receive(at_front, 20'000), Channel::Received::kMessage); });
  EXPECT_EQ(rank.receive(at_rank, 20'000), Channel::Received::kMessage);
  for (std::thread* thread : {&front_sends, &rank_sends, &front_receives}) thread->join();
  EXPECT_EQ(at_rank.bytes, down);
  EXPECT_EQ(at_front.bytes, up);
}

TEST(Channel, a_receive_without_a_message_times_out) {
  auto [front, rank] = Channel::make_pair();
  Message message;
  EXPECT_EQ(rank.receive(message, 0), Channel::Received::kTimeout);
  const int64_t start_us = now_us();
  EXPECT_EQ(rank.receive(message, 30, 10'000), Channel::Received::kTimeout);
  EXPECT_GE(now_us() - start_us, 30'000);
}

TEST(Channel, a_message_in_pieces_survives_the_timeouts_between_them) {
  auto [raw, end] = raw_pair();
  Channel rank(std::move(end));
  const uint32_t header[2] = {5, 42};
  char frame[13];
  std::memcpy(frame, header, 8);
  std::memcpy(frame + 8, "hello", 5);
  Message message;
  for (size_t i = 0; i < sizeof frame - 1; ++i) {
    ASSERT_EQ(::write(raw.get(), frame + i, 1), 1);
    ASSERT_EQ(rank.receive(message, 0), Channel::Received::kTimeout) << i;
  }
  ASSERT_EQ(::write(raw.get(), frame + sizeof frame - 1, 1), 1);
  ASSERT_EQ(rank.receive(message, 0), Channel::Received::kMessage);
  EXPECT_EQ(message.type, 42u);
  EXPECT_EQ(std::memcmp(message.bytes.data(), "hello", 5), 0);
}

TEST(Channel, a_closed_end_is_told_after_the_last_message) {
  auto [front, rank] = Channel::make_pair();
  front.send(1, pattern(10, 3));
  { const Channel gone = std::move(front); }
  Message message;
  EXPECT_EQ(rank.receive(message, 1000), Channel::Received::kMessage);
  EXPECT_EQ(rank.receive(message, 1000), Channel::Received::kClosed);
  EXPECT_EQ(rank.receive(message, -1), Channel::Received::kClosed);
}

TEST(Channel, an_end_that_closes_inside_a_message_is_closed) {
  auto [raw, end] = raw_pair();
  Channel rank(std::move(end));
  ASSERT_EQ(::write(raw.get(), "\x05\0\0\0\x01\0\0\0hi", 10), 10);
  raw.reset();
  Message message;
  EXPECT_EQ(rank.receive(message, 1000), Channel::Received::kClosed);
}

// SIGPIPE would end this test.
TEST(Channel, sending_to_a_closed_end_is_an_error_and_no_signal) {
  auto [front, rank] = Channel::make_pair();
  { const Channel gone = std::move(rank); }
  try {
    front.send(1, pattern(10, 3));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    EXPECT_NE(std::string(error.what()).find("control channel"), std::string::npos) << error.what();
  }
}

TEST(Channel, a_length_beyond_the_bound_is_refused_before_it_is_used) {
  auto [raw, end] = raw_pair();
  Channel rank(std::move(end));
  ASSERT_EQ(::write(raw.get(), "\xff\xff\xff\xff\x01\0\0\0", 8), 8);
  Message message;
  EXPECT_THROW(rank.receive(message, 1000), Error);
}

TEST(Channel, descriptors_do_not_leak_into_programs_that_are_started) {
  auto [front, rank] = Channel::make_pair();
  EXPECT_NE(::fcntl(front.fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(::fcntl(rank.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace coprime
