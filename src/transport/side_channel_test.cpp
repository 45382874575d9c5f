#include "transport/side_channel.h"

#include <gtest/gtest.h>

#include "transport/testing.h"

namespace coprime {
namespace {

using testing::stream_pair;

TEST(SideChannel, barriers_arrive_in_order_and_whole) {
  auto [a_end, b_end] = stream_pair();
  SideChannel a(std::move(a_end)), b(std::move(b_end));
  EXPECT_FALSE(b.receive());
  a.send({.kind = 0xD1, .place = 3, .sequence = 17});
  a.send({.kind = 0xB16, .sequence = 1, .bytes = 1u << 30});
  EXPECT_EQ(b.receive(), (Barrier{.kind = 0xD1, .place = 3, .sequence = 17}));
  EXPECT_EQ(b.receive(), (Barrier{.kind = 0xB16, .sequence = 1, .bytes = 1u << 30}));
  EXPECT_FALSE(b.receive());
  EXPECT_EQ(b.failure(), "");
}

TEST(SideChannel, more_barriers_than_the_socket_takes_are_kept) {
  auto [a_end, b_end] = stream_pair();
  SideChannel a(std::move(a_end)), b(std::move(b_end));
  constexpr uint64_t kCount = 100'000;
  for (uint64_t i = 0; i < kCount; ++i) a.send({.kind = 1, .sequence = i});
  for (uint64_t i = 0; i < kCount;) {
    const std::optional<Barrier> barrier = b.receive();
    if (barrier) {
      ASSERT_EQ(barrier->sequence, i++);
    } else {
      ASSERT_FALSE(a.peer_closed());  // sends what is left
    }
  }
}

TEST(SideChannel, pending_bytes_mean_that_the_peer_is_alive) {
  auto [a_end, b_end] = stream_pair();
  SideChannel a(std::move(a_end));
  {
    SideChannel b(std::move(b_end));
    EXPECT_FALSE(a.peer_closed());
    b.send({.kind = 0xD1});
  }
  EXPECT_FALSE(a.peer_closed());
  EXPECT_TRUE(a.receive());
  EXPECT_TRUE(a.peer_closed());
  EXPECT_EQ(a.failure(), "closed the connection");
}

TEST(SideChannel, bytes_that_are_no_barrier_end_it) {
  auto [raw, end] = stream_pair();
  SideChannel channel(std::move(end));
  const std::string text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  ASSERT_EQ(::send(raw.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
  EXPECT_FALSE(channel.receive());
  EXPECT_EQ(channel.failure(), "sent what is no barrier (it begins with 0x20544547)");
}

}  // namespace
}  // namespace coprime
