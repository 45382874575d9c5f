#include "transport/rendezvous.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {
namespace {

struct World {
  explicit World(int ranks) : token(make_world_token()) {
    for (int rank = 0; rank < ranks; ++rank) {
      listeners.push_back(MeshListener::open(rank, 0));
      ports.push_back(listeners.back().port());
    }
  }
  WorldToken token;
  std::vector<MeshListener> listeners;
  std::vector<uint16_t> ports;
};

UniqueFd dial(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// Every rank tells every other one who it is over the mesh.
void expect_full_mesh(const World& world, int ranks) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto sockets = connect_mesh(world.listeners[static_cast<size_t>(rank)], world.ports, world.token, 20'000);
      ASSERT_EQ(static_cast<int>(sockets.size()), ranks);
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        const int words[2] = {rank, peer};
        ASSERT_EQ(::send(sockets[static_cast<size_t>(peer)].get(), words, sizeof words, 0),
                  static_cast<ssize_t>(sizeof words));
      }
      for (int peer = 0; peer < ranks; ++peer) {
        const int fd = sockets[static_cast<size_t>(peer)].get();
        if (peer == rank) {
          EXPECT_EQ(fd, -1);
          continue;
        }
        int words[2] = {};
        ASSERT_TRUE(wait_for_events(fd, POLLIN, now_us() + 10'000'000));
        ASSERT_EQ(::recv(fd, words, sizeof words, 0), static_cast<ssize_t>(sizeof words));
        EXPECT_EQ(words[0], peer);
        EXPECT_EQ(words[1], rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Rendezvous, joins_every_pair_of_ranks) {
  for (const int ranks : {1, 2, 3, 5, 8, 16}) expect_full_mesh(World(ranks), ranks);
}

TEST(Rendezvous, strangers_are_dropped_and_harm_nobody) {
  const World world(3);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 100; ++i) strangers.push_back(dial(world.ports[0]));  // silent
  for (const uint16_t port : world.ports) {
    strangers.push_back(dial(port));
    const std::string text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    ::send(strangers.back().get(), text.data(), text.size(), MSG_NOSIGNAL);
    strangers.push_back(dial(port));
    ::send(strangers.back().get(), "\x4d", 1, MSG_NOSIGNAL);  // the start of a greeting
  }
  expect_full_mesh(world, 3);
}

TEST(Rendezvous, a_rank_of_another_world_is_not_let_in) {
  const World world(2);
  WorldToken other = world.token;
  other[15] ^= std::byte{1};
  std::string error;
  std::thread intruder([&] {
    try {
      connect_mesh(world.listeners[1], world.ports, other, 20'000);
    } catch (const Error& caught) {
      error = caught.what();
    }
  });
  EXPECT_THROW(connect_mesh(world.listeners[0], world.ports, world.token, 300), Error);
  intruder.join();
  EXPECT_NE(error.find("rank 0"), std::string::npos) << error;
}

TEST(Rendezvous, ranks_that_do_not_come_are_named_at_the_deadline) {
  const World world(4);
  const int64_t start_us = now_us();
  std::thread other([&] { EXPECT_THROW(connect_mesh(world.listeners[2], world.ports, world.token, 200), Error); });
  try {
    connect_mesh(world.listeners[0], world.ports, world.token, 200);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    EXPECT_NE(std::string(error.what()).find("rank 0 is not connected to ranks 1, 3 within"), std::string::npos)
        << error.what();
  }
  other.join();
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

TEST(Rendezvous, a_rank_that_does_not_listen_is_named_at_once) {
  World world(2);
  world.listeners.erase(world.listeners.begin());
  try {
    connect_mesh(world.listeners[0], world.ports, world.token, 10'000);
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string expected =
        fmt::format("rank 1 cannot connect to rank 0 on 127.0.0.1:{}: Connection refused", world.ports[0]);
    EXPECT_EQ(std::string(error.what()).find(expected), 0u) << error.what();
  }
}

TEST(Rendezvous, a_port_that_is_taken_is_named) {
  const MeshListener first = MeshListener::open(0, 0);
  try {
    MeshListener::open(1, first.port());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    EXPECT_EQ(std::string(error.what()),
              fmt::format("rank 1 cannot listen on 127.0.0.1:{}: Address already in use: choose another --port",
                          first.port()));
  }
}

TEST(Rendezvous, a_port_can_be_taken_again_when_its_connections_are_over) {
  uint16_t port = 0;
  for (int round = 0; round < 3; ++round) {
    const MeshListener listener = MeshListener::open(0, port);
    port = listener.port();
    const UniqueFd client = dial(port);
    const UniqueFd server(::accept(listener.fd(), nullptr, nullptr));  // blocks not: the client has connected
    EXPECT_TRUE(static_cast<bool>(server));
  }
}

TEST(Rendezvous, tokens_differ) { EXPECT_NE(make_world_token(), make_world_token()); }

}  // namespace
}  // namespace coprime
