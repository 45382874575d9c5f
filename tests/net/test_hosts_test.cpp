// The test hosts themselves: what they carry, delay, lose and cut is what tests of the program will meet.
#include "net/test_hosts.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <numeric>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int kPort = 7000;
constexpr int kPatienceMs = 20'000;  // of waits that should end soon, on a busy machine

sockaddr_in socket_address(const std::string& address, int port = kPort) {
  sockaddr_in result{.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  EXPECT_EQ(::inet_pton(AF_INET, address.c_str(), &result.sin_addr), 1);
  return result;
}

bool readable(int fd, int timeout_ms) {
  pollfd wanted{fd, POLLIN, 0};
  return ::poll(&wanted, 1, timeout_ms) == 1;
}

// A connection from host `a` to host `b`. Sockets belong to the namespace that they were made in, whoever uses them.
struct Connection {
  UniqueFd near, far;

  Connection(const TestHosts& hosts, int a, int b) {
    UniqueFd listener;
    hosts.run(b, [&] {
      listener = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = socket_address(hosts.address(b));
      ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
      ASSERT_EQ(::listen(listener.get(), 1), 0);
    });
    hosts.run(a, [&] {
      near = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in address = socket_address(hosts.address(b));
      ASSERT_EQ(::connect(near.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
          << errno_text(errno);
    });
    far = UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int one = 1;
    for (const int fd : {near.get(), far.get()}) ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }
};

std::vector<uint8_t> pattern(size_t bytes) {
  std::vector<uint8_t> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  return data;
}

// Sends on a thread, so that neither side need hold it all.
std::vector<uint8_t> carry(int from, int to, const std::vector<uint8_t>& data) {
  std::thread sender([&] { EXPECT_EQ(::send(from, data.data(), data.size(), MSG_NOSIGNAL), std::ssize(data)); });
  std::vector<uint8_t> got(data.size());
  size_t have = 0;
  while (have < got.size() && readable(to, kPatienceMs)) {
    const ssize_t bytes = ::recv(to, got.data() + have, got.size() - have, 0);
    if (bytes <= 0) break;
    have += static_cast<size_t>(bytes);
  }
  if (have < got.size()) ::shutdown(from, SHUT_RDWR);  // the sender must not wait for ever
  sender.join();
  got.resize(have);
  return got;
}

int64_t round_trip_us(const Connection& connection) {
  const int64_t begin_us = now_us();
  char byte = 'x';
  EXPECT_EQ(::send(connection.near.get(), &byte, 1, 0), 1);
  EXPECT_EQ(::recv(connection.far.get(), &byte, 1, 0), 1);
  EXPECT_EQ(::send(connection.far.get(), &byte, 1, 0), 1);
  EXPECT_EQ(::recv(connection.near.get(), &byte, 1, 0), 1);
  return now_us() - begin_us;
}

uint32_t retransmissions(int socket) {
  tcp_info info = {};
  socklen_t length = sizeof info;
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
  return info.tcpi_total_retrans;
}

TEST(TestHosts, reach_each_other_and_nothing_else) {
  TestHosts hosts(3);
  const std::vector<uint8_t> data = pattern(1 << 20);
  for (const auto& [a, b] : {std::pair{0, 1}, {1, 2}, {2, 0}}) {
    const Connection connection(hosts, a, b);
    EXPECT_EQ(carry(connection.near.get(), connection.far.get(), data), data);
    EXPECT_EQ(carry(connection.far.get(), connection.near.get(), data), data);
    EXPECT_GT(hosts.way(a, b).carried, 0u);
  }
  hosts.run(0, [&] {  // the loopback is the host's own, and there is no way out
    for (const char* address : {"127.0.0.1", "192.0.2.1"}) {
      const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const sockaddr_in to = socket_address(address);
      EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), -1) << address;
    }
  });
}

TEST(TestHosts, delay_every_packet) {
  TestHosts hosts(2);
  const Connection connection(hosts, 0, 1);
  hosts.delay_us(20'000);
  for (int i = 0; i < 3; ++i) {
    const int64_t trip_us = round_trip_us(connection);
    EXPECT_GE(trip_us, 40'000);
    EXPECT_LT(trip_us, 400'000);
  }
  hosts.delay_us(0);
  int64_t best_us = INT64_MAX;
  for (int i = 0; i < 20; ++i) best_us = std::min(best_us, round_trip_us(connection));
  EXPECT_LT(best_us, 20'000);
}

TEST(TestHosts, lose_packets_that_tcp_sends_again) {
  TestHosts hosts(2);
  const Connection connection(hosts, 0, 1);
  hosts.loss(0.03);
  const std::vector<uint8_t> data = pattern(1 << 20);
  EXPECT_EQ(carry(connection.near.get(), connection.far.get(), data), data);
  EXPECT_GT(hosts.way(0, 1).dropped, 0u);
  EXPECT_GT(retransmissions(connection.near.get()), 0u);
}

TEST(TestHosts, stall_when_their_cable_is_cut_and_go_on_when_it_is_joined) {
  TestHosts hosts(3);
  const Connection connection(hosts, 0, 1), other(hosts, 0, 2);
  round_trip_us(connection);
  hosts.cut(0, 1);
  EXPECT_EQ(::send(connection.near.get(), "x", 1, 0), 1);
  EXPECT_FALSE(readable(connection.far.get(), 300));
  EXPECT_GT(hosts.way(0, 1).dropped, 0u);
  round_trip_us(other);  // its cable is another
  hosts.join(0, 1);
  EXPECT_TRUE(readable(connection.far.get(), kPatienceMs));
}

TEST(TestHosts, stall_when_a_card_has_no_link_and_go_on_when_it_has) {
  TestHosts hosts(2);
  const Connection connection(hosts, 0, 1);
  round_trip_us(connection);
  for (const int unplugged : {0, 1}) {
    hosts.set_link(unplugged, false);
    EXPECT_EQ(::send(connection.near.get(), "x", 1, 0), 1);
    EXPECT_FALSE(readable(connection.far.get(), 300)) << unplugged;
    hosts.set_link(unplugged, true);
    EXPECT_TRUE(readable(connection.far.get(), kPatienceMs)) << unplugged;
    char byte;
    EXPECT_EQ(::recv(connection.far.get(), &byte, 1, 0), 1);
  }
}

TEST(TestHosts, run_programs_whose_output_and_end_are_seen) {
  TestHosts hosts(2);
  HostProgram cat = hosts.start(1, {"/bin/cat", "/proc/net/fib_trie"});
  EXPECT_EQ(cat.wait(kPatienceMs), 0);
  EXPECT_NE(cat.out().find(hosts.address(1)), std::string::npos) << cat.out();
  EXPECT_EQ(cat.out().find(hosts.address(0)), std::string::npos) << cat.out();

  HostProgram shell = hosts.start(0, {"/bin/sh", "-c", "echo one; echo two >&2; exec sleep 100"});
  EXPECT_TRUE(shell.says("one", kPatienceMs));
  EXPECT_TRUE(shell.says("two", kPatienceMs));
  EXPECT_FALSE(shell.says("three", 0));
  EXPECT_EQ(shell.err(), "two\n");
  EXPECT_EQ(shell.wait(10), std::nullopt);
  shell.signal(SIGKILL);
  EXPECT_EQ(shell.wait(kPatienceMs), 128 + SIGKILL);
  EXPECT_EQ(hosts.start(0, {"/no/such/program"}).wait(kPatienceMs), 127);
}

TEST(TestHostsDeathTest, say_how_to_run_where_they_may_not_be_made) {
  const auto without_privilege = [] {
    if (::setuid(65534) != 0) ::_exit(1);
    try {
      TestHosts hosts(1);
    } catch (const std::runtime_error& error) {
      std::fputs(error.what(), stderr);
      ::_exit(7);
    }
    ::_exit(0);
  };
  EXPECT_EXIT(without_privilege(), ::testing::ExitedWithCode(7),
              "not permitted; they need root.*run the tests as root");
}

}  // namespace
}  // namespace coprime
