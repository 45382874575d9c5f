#include "transport/endpoint.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {
namespace {

const Endpoint kAnyPort = {"127.0.0.1", 0};

template <class F>
std::string error_of(F&& call, ErrorKind kind) {
  try {
    call();
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(Endpoint, is_parsed_and_printed) {
  EXPECT_EQ(parse_endpoint("node-a:7000"), (Endpoint{"node-a", 7000}));
  EXPECT_EQ(parse_endpoint("10.0.0.2:0"), (Endpoint{"10.0.0.2", 0}));
  EXPECT_EQ(parse_endpoint("[::1]:65535"), (Endpoint{"::1", 65535}));
  EXPECT_EQ(parse_endpoint("[fe80::1%eth0]:7"), (Endpoint{"fe80::1%eth0", 7}));
  for (const char* text : {"node-a:7000", "10.0.0.2:1", "[::1]:65535"}) EXPECT_EQ(parse_endpoint(text).text(), text);
}

TEST(Endpoint, that_is_none_is_refused_with_an_example) {
  for (const std::string text : {"", "host", "host:", ":7000", "host:65536", "host:-1", "host:+1", "host:7x", "host: 7",
                                 "::1:7000", "[::1]", "[::1]7000", "[]:7", "a]:7", "host:99999999999999999999"}) {
    const std::string error = error_of([&] { parse_endpoint(text); }, ErrorKind::kUsage);
    EXPECT_EQ(error.find(fmt::format("\"{}\" is no HOST:PORT", text)), 0u) << error;
    EXPECT_TRUE(contains(error, "for example 10.0.0.2:7000")) << error;
  }
}

TEST(Endpoint, an_unknown_host_is_named) {
  EXPECT_TRUE(contains(error_of([] { resolve({"host.invalid", 7000}); }, ErrorKind::kLink), "host host.invalid"));
}

TEST(Address, loopback_is_told_from_the_rest) {
  for (const char* host : {"127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(resolve({host, 1})[0].is_loopback()) << host;
  for (const char* host : {"0.0.0.0", "10.0.0.1", "::", "fe80::1", "::ffff:10.0.0.1"})
    EXPECT_FALSE(resolve({host, 1})[0].is_loopback()) << host;
}

TEST(Listener, beyond_loopback_needs_a_key) {
  for (const char* host : {"0.0.0.0", "::"}) {
    const std::string error = error_of([&] { Listener::open({host, 0}, false, ""); }, ErrorKind::kUsage);
    EXPECT_TRUE(contains(error, "give a --key-file")) << error;
  }
  EXPECT_NE(Listener::open({"0.0.0.0", 0}, true, "").port(), 0);
}

TEST(Listener, names_a_port_that_is_taken) {
  const Listener first = Listener::open(kAnyPort, false, "");
  const Endpoint taken = first.address().endpoint();
  EXPECT_EQ(error_of([&] { Listener::open(taken, false, "choose another --port"); }, ErrorKind::kLink),
            fmt::format("cannot listen on {}: Address already in use: choose another --port", taken.text()));
}

TEST(Listener, takes_a_port_again_when_its_connections_are_over) {
  Endpoint endpoint = kAnyPort;
  for (int round = 0; round < 3; ++round) {
    const Listener listener = Listener::open(endpoint, false, "");
    endpoint = listener.address().endpoint();
    const UniqueFd client = dial_until(endpoint, Traffic::kData, now_us() + 5'000'000);
    const UniqueFd server(::accept(listener.fd(), nullptr, nullptr));
    EXPECT_TRUE(static_cast<bool>(server));
  }
}

TEST(Dial, ends_are_tuned_and_know_each_other) {
  const Listener listener = Listener::open(kAnyPort, false, "");
  const UniqueFd client = dial_until(listener.address().endpoint(), Traffic::kControl, now_us() + 5'000'000);
  const UniqueFd server(::accept(listener.fd(), nullptr, nullptr));
  EXPECT_EQ(local_address(client.get()).text(), peer_address(server.get()).text());
  EXPECT_EQ(peer_address(client.get()).endpoint(), listener.address().endpoint());
  const auto option = [&](int level, int name) {
    int value = 0;
    socklen_t length = sizeof value;
    EXPECT_EQ(::getsockopt(client.get(), level, name, &value, &length), 0);
    return value;
  };
  EXPECT_EQ(option(IPPROTO_TCP, TCP_NODELAY), 1);
  EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 5'000);
}

TEST(Dial, tries_again_until_somebody_listens) {
  const Endpoint endpoint = Listener::open(kAnyPort, false, "").address().endpoint();
  std::vector<std::string> reports;
  UniqueFd client;
  std::thread dialler([&] {
    client = dial_until(endpoint, Traffic::kData, now_us() + 20'000'000,
                        [&](const std::string& why) { reports.push_back(why); });
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Listener listener = Listener::open(endpoint, false, "");
  dialler.join();
  EXPECT_TRUE(static_cast<bool>(client));
  ASSERT_EQ(reports.size(), 1u);  // and not one for each try
  EXPECT_EQ(reports[0], fmt::format("{}: Connection refused", endpoint.text()));
}

TEST(Dial, names_the_last_reason_at_the_deadline) {
  const Endpoint endpoint = Listener::open(kAnyPort, false, "").address().endpoint();
  const int64_t start_us = now_us();
  EXPECT_EQ(error_of([&] { dial_until(endpoint, Traffic::kData, now_us() + 300'000); }, ErrorKind::kLink),
            fmt::format("cannot connect to {}: Connection refused", endpoint.text()));
  EXPECT_LT(now_us() - start_us, 2'000'000);
}

TEST(Dial, stops_when_it_is_told_to) {
  const Endpoint endpoint = Listener::open(kAnyPort, false, "").address().endpoint();
  const int64_t start_us = now_us();
  const auto stop = [&] { return now_us() - start_us > 100'000; };
  EXPECT_FALSE(static_cast<bool>(dial_until(endpoint, Traffic::kData, now_us() + 60'000'000, {}, stop)));
  EXPECT_LT(now_us() - start_us, 2'000'000);
}

TEST(Dial, goes_on_to_the_next_address_of_a_name) {
  const Listener listener = Listener::open(kAnyPort, false, "");
  const Endpoint closed = Listener::open(kAnyPort, false, "").address().endpoint();
  std::vector<Address> addresses = resolve(closed);
  addresses.push_back(listener.address());
  Dial dial(addresses, Traffic::kData);
  while (dial.advance() == Dial::State::kConnecting) wait_for_events(dial.fd(), POLLOUT, now_us() + 1'000'000);
  EXPECT_EQ(dial.state(), Dial::State::kConnected);
}

}  // namespace
}  // namespace coprime
