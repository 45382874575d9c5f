#include "transport/mesh.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "transport/door.h"
#include "transport/socket.h"

namespace coprime {
namespace {

struct World {
  explicit World(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      listeners.push_back(Listener::open({"127.0.0.1", 0}, false, "choose another port"));
      endpoints.push_back(listeners.back().address().endpoint());
    }
  }
  Membership member(int rank) const { return {rank, static_cast<int>(endpoints.size()), id, key, 1}; }
  std::vector<MeshConnection> connect(const Membership& me, int timeout_ms = 20'000) const {
    return connect_mesh(listeners[static_cast<size_t>(me.rank)], endpoints, (1u << endpoints.size()) - 1, me,
                        timeout_ms, [] {});
  }
  // The error's text, or "" when it worked.
  std::string error_of(const Membership& me, int timeout_ms = 20'000) const {
    try {
      connect(me, timeout_ms);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLink);
      return error.what();
    }
  }

  WorldId id = make_world_id();
  SecretKey key = make_secret_key();
  std::vector<Listener> listeners;
  std::vector<Endpoint> endpoints;
};

UniqueFd dial(const Endpoint& endpoint) { return dial_until(endpoint, Traffic::kData, now_us() + 5'000'000); }
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// A rank of the mesh that plays by its own rules: it claims what it likes, under the world's key.
std::string claim(const World& world, int at, uint32_t from, uint32_t to, uint32_t ranks, uint32_t epoch,
                  const WorldId& id) {
  struct {
    WorldId world;
    uint32_t epoch, ranks, from, to;
  } payload = {id, epoch, ranks, from, to};
  try {
    introduce(dial(world.endpoints[static_cast<size_t>(at)]), world.key.derive("coprime mesh", world.id),
              std::as_bytes(std::span(&payload, 1)), "the listener", now_us() + 5'000'000);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Every rank tells every other one who it is over the mesh, and that it has the same session key.
void expect_full_mesh(const World& world, int ranks) {
  struct Word {
    int from, to;
    std::array<std::byte, 32> key;
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto mesh = world.connect(world.member(rank));
      ASSERT_EQ(static_cast<int>(mesh.size()), ranks);
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == rank) continue;
        const MeshConnection& connection = mesh[static_cast<size_t>(peer)];
        Word word = {rank, peer, {}};
        std::ranges::copy(connection.session_key->bytes(), word.key.begin());
        ASSERT_EQ(::send(connection.socket.get(), &word, sizeof word, 0), static_cast<ssize_t>(sizeof word));
      }
      for (int peer = 0; peer < ranks; ++peer) {
        const MeshConnection& connection = mesh[static_cast<size_t>(peer)];
        if (peer == rank) {
          EXPECT_EQ(connection.socket.get(), -1);
          continue;
        }
        Word word = {};
        ASSERT_TRUE(wait_for_events(connection.socket.get(), POLLIN, now_us() + 10'000'000));
        ASSERT_EQ(::recv(connection.socket.get(), &word, sizeof word, 0), static_cast<ssize_t>(sizeof word));
        EXPECT_EQ(word.from, peer);
        EXPECT_EQ(word.to, rank);
        EXPECT_TRUE(std::ranges::equal(word.key, connection.session_key->bytes()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mesh, joins_every_pair_of_ranks) {
  for (const int ranks : {1, 2, 3, 5, 8, 16}) expect_full_mesh(World(ranks), ranks);
}

TEST(Mesh, joins_only_the_pairs_that_need_it) {
  const World world(4);
  const uint32_t peers[4] = {0b1000, 0b0100, 0b0010, 0b0001};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; ++rank) {
    threads.emplace_back([&, rank] {
      const auto mesh = connect_mesh(world.listeners[static_cast<size_t>(rank)], world.endpoints,
                                     peers[static_cast<size_t>(rank)], world.member(rank), 20'000, [] {});
      for (int peer = 0; peer < 4; ++peer)
        EXPECT_EQ(static_cast<bool>(mesh[static_cast<size_t>(peer)].socket), peer == 3 - rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Mesh, is_given_up_when_whoever_looks_says_so) {
  const World world(2);
  const int64_t begin_us = now_us();
  int looks = 0;
  const auto look = [&] {
    if (++looks == 3) throw std::runtime_error("enough");
  };
  EXPECT_THROW(connect_mesh(world.listeners[0], world.endpoints, 0b10, world.member(0), 60'000, look),
               std::runtime_error);
  EXPECT_LT(now_us() - begin_us, 30'000'000);
}

TEST(Mesh, joins_processes) {
  const World world(2);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mesh = world.connect(world.member(1));
    ::_exit(::send(mesh[0].socket.get(), "hello", 5, MSG_NOSIGNAL) == 5 ? 0 : 1);
  }
  const auto mesh = world.connect(world.member(0));
  char text[5] = {};
  EXPECT_TRUE(wait_for_events(mesh[1].socket.get(), POLLIN, now_us() + 10'000'000));
  EXPECT_EQ(::recv(mesh[1].socket.get(), text, sizeof text, 0), 5);
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

// Ranks 0 and 1 wait for rank 2 while 500 strangers knock at their doors; then it comes.
TEST(Mesh, five_hundred_strangers_are_dropped_and_harm_nobody) {
  const World world(3);
  std::atomic<int> joined = 0;
  std::vector<std::thread> threads;
  const auto join = [&](int rank) {
    threads.emplace_back([&, rank] {
      EXPECT_EQ(world.error_of(world.member(rank)), "");
      ++joined;
    });
  };
  join(0);
  join(1);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 500; ++i) {
    strangers.push_back(dial(world.endpoints[static_cast<size_t>(i % 2)]));
    const std::string text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const int fd = strangers.back().get();
    if (i % 6 < 2) ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (i % 6 > 3) ::send(fd, "OPRP", 4, MSG_NOSIGNAL);  // the start of a greeting
  }
  EXPECT_EQ(joined, 0);
  const int64_t start_us = now_us();
  join(2);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(joined, 3);
  EXPECT_LT(now_us() - start_us, 3'000'000);
}

TEST(Mesh, another_key_is_named_on_both_sides) {
  const World world(2);
  Membership other = world.member(1);
  other.key = make_secret_key();
  std::string error;
  std::thread intruder([&] { error = world.error_of(other); });
  const std::string own = world.error_of(world.member(0), 500);
  intruder.join();
  EXPECT_TRUE(contains(error, "rank 1 is not connected: rank 0 at 127.0.0.1:")) << error;
  EXPECT_TRUE(contains(error, "holds another key")) << error;
  EXPECT_TRUE(contains(own, "rank 0 is not connected to rank 1")) << own;
  EXPECT_TRUE(contains(own, "holds another key")) << own;
}

TEST(Mesh, claims_that_do_not_fit_the_world_are_refused_with_the_reason) {
  const World world(3);
  std::string own;
  std::thread listener([&] { own = world.error_of(world.member(0), 1500); });
  EXPECT_TRUE(contains(claim(world, 0, 3, 0, 3, 1, world.id), "there is no rank 3 in a world of 3"));
  EXPECT_TRUE(contains(claim(world, 0, 1, 0, 4, 1, world.id), "the world has 3 ranks here, 4 there"));
  EXPECT_TRUE(contains(claim(world, 0, 1, 2, 3, 1, world.id), "this is rank 0, not rank 2"));
  EXPECT_TRUE(contains(claim(world, 0, 0, 0, 3, 1, world.id), "rank 0 does not wait for rank 0"));
  EXPECT_TRUE(contains(claim(world, 0, 1, 0, 3, 2, world.id), "epoch 1 is here, 2 there"));
  EXPECT_TRUE(contains(claim(world, 0, 1, 0, 3, 1, make_world_id()), "this is a rank of another world"));
  listener.join();
  EXPECT_TRUE(contains(own, "there is no rank 3 in a world of 3")) << own;
}

TEST(Mesh, a_duplicate_rank_is_refused_while_the_first_is_there) {
  const World world(3);
  std::thread listener([&] { world.error_of(world.member(0), 1500); });
  struct {
    WorldId world;
    uint32_t epoch, ranks, from, to;
  } payload = {world.id, 1, 3, 1, 0};
  const auto come = [&] {
    return introduce(dial(world.endpoints[0]), world.key.derive("coprime mesh", world.id),
                     std::as_bytes(std::span(&payload, 1)), "the listener", now_us() + 5'000'000);
  };
  {
    const Authenticated first = come();
    try {
      come();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_TRUE(contains(error.what(), "there is a rank 1 already")) << error.what();
    }
  }
  EXPECT_NO_THROW(come());  // the first has gone: it may have been started again
  listener.join();
}

TEST(Mesh, ranks_that_do_not_come_are_named_at_the_deadline) {
  const World world(4);
  const int64_t start_us = now_us();
  std::thread other([&] { world.error_of(world.member(2), 200); });
  const std::string error = world.error_of(world.member(0), 200);
  EXPECT_TRUE(contains(error, "rank 0 is not connected to ranks 1, 3 within")) << error;
  other.join();
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

TEST(Mesh, a_listener_that_stays_silent_is_named_at_the_deadline) {
  const World world(2);  // rank 0's port is open, and nobody serves it
  const std::string error = world.error_of(world.member(1), 300);
  EXPECT_TRUE(contains(error, "rank 1 is not connected to rank 0 within the time-out")) << error;
}

TEST(Mesh, a_rank_of_a_later_epoch_waits_for_one_that_is_behind) {
  const World world(2);
  Membership ahead = world.member(1), behind = world.member(0);
  ahead.epoch = 2;
  std::thread first([&] { EXPECT_EQ(world.error_of(ahead), ""); });
  EXPECT_NE(world.error_of(behind, 300), "");
  behind.epoch = 2;
  EXPECT_EQ(world.error_of(behind), "");
  first.join();
}

TEST(Mesh, a_rank_that_does_not_listen_is_named_at_once) {
  World world(2);
  world.listeners[0] = Listener::open({"127.0.0.1", 0}, false, "");  // the one in the table is closed
  const std::string error = world.error_of(world.member(1));
  const std::string expected =
      fmt::format("rank 1 cannot connect to rank 0 at {}: Connection refused", world.endpoints[0].text());
  EXPECT_EQ(error.find(expected), 0u) << error;
}

TEST(Mesh, worlds_differ) { EXPECT_NE(make_world_id(), make_world_id()); }

}  // namespace
}  // namespace coprime
