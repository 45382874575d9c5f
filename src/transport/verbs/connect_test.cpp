// connect_verbs() between two hosts of the fake fabric, each rank in a thread of its own.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "base/clock.h"
#include "base/error.h"
#include "transport/authenticated_queue_pair.h"
#include "transport/testing.h"
#include "transport/verbs/testing/fake_verbs.h"
#include "transport/verbs/verbs_device.h"
#include "transport/verbs/verbs_queue_pair.h"

namespace coprime {
namespace {

using testing::stream_pair;

struct Outcome {
  VerbsLink link;
  std::string error;  // what was thrown, or the refusal on which both agreed
  bool refused = false;
};

// Rank 0 on one host and rank 1 on another.
struct World {
  World() : fabric(std::make_shared<FakeFabric>()), hosts{FakeHost(fabric), FakeHost(fabric)}, sockets(stream_pair()) {
    for (uint8_t rank = 0; rank < 2; ++rank) {
      hosts[rank].devices[0].gids = {gid_entry(ipv4(10, 0, 0, rank)), gid_entry(ipv4(10, 1, 0, rank))};
      options[rank].gate_timeout_ms = 200;
    }
  }

  void set(VerbsType type) { options[0].type = options[1].type = type; }

  Outcome run(int rank) {
    const UniqueFd& socket = rank == 0 ? sockets.first : sockets.second;
    Outcome outcome;
    try {
      outcome.link = connect_verbs(VerbsDevice::open(hosts[rank].library(), ""), options[rank], socket.get(), rank,
                                   1 - rank, timeout_ms);
      EXPECT_EQ(outcome.link.refusal.empty(), outcome.link.pair != nullptr);
      outcome.error = outcome.link.refusal;
      outcome.refused = !outcome.error.empty();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kLink);
      outcome.error = error.what();
      (rank == 0 ? sockets.first : sockets.second).reset();
    }
    return outcome;
  }

  std::array<Outcome, 2> connect() {
    auto other = std::async(std::launch::async, [&] { return run(1); });
    std::array<Outcome, 2> outcomes;
    outcomes[0] = run(0);
    outcomes[1] = other.get();
    return outcomes;
  }

  // Both refused, each with these words; the socket is left as it was.
  void expect_refused(const std::string& by_0, const std::string& by_1) {
    const auto outcomes = connect();
    EXPECT_EQ(outcomes[0].error, by_0);
    EXPECT_EQ(outcomes[1].error, by_1);
    EXPECT_TRUE(outcomes[0].refused && outcomes[1].refused);
    EXPECT_EQ(hosts[0].objects + hosts[1].objects, 0);
    for (const UniqueFd* socket : {&sockets.first, &sockets.second}) {
      char byte;
      EXPECT_EQ(::recv(socket->get(), &byte, 1, MSG_DONTWAIT), -1);
      EXPECT_EQ(errno, EAGAIN);
    }
  }

  std::shared_ptr<FakeFabric> fabric;
  FakeHost hosts[2];
  VerbsOptions options[2];
  std::pair<UniqueFd, UniqueFd> sockets;
  int timeout_ms = 5000;
};

// That both ends' first receives get exactly what is sent now: the setup left nothing behind.
void expect_clean(std::array<Outcome, 2>& outcomes) {
  ASSERT_EQ(outcomes[0].error + outcomes[1].error, "");
  constexpr size_t kBytes = 3000;
  std::vector<std::byte> memory[2];
  for (int rank = 0; rank < 2; ++rank) {
    memory[rank].resize(2 * kBytes);
    std::memset(memory[rank].data(), 0x10 + rank, kBytes);
    ASSERT_TRUE(outcomes[rank].link.pair->register_memory(memory[rank]));
    const WorkRequest request = {.id = 5, .data = memory[rank].data() + kBytes, .bytes = kBytes};
    outcomes[rank].link.pair->post_recv({&request, 1});
  }
  for (int rank = 0; rank < 2; ++rank) {
    const WorkRequest request = {.id = 6, .data = memory[rank].data(), .bytes = kBytes};
    outcomes[rank].link.pair->post_send({&request, 1});
  }
  for (int rank = 0; rank < 2; ++rank) {
    std::array<Completion, 8> completions;
    ASSERT_EQ(outcomes[rank].link.pair->poll(completions), 2) << outcomes[rank].link.pair->failure();
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(completions[i].id, completions[i].kind == Completion::Kind::kReceive ? 5u : 6u);
      EXPECT_EQ(completions[i].bytes, kBytes);
    }
    EXPECT_EQ(std::memcmp(memory[rank].data() + kBytes, memory[1 - rank].data(), kBytes), 0);
    outcomes[rank].link.pair.reset();
  }
}

TEST(ConnectVerbs, two_ranks_come_to_a_pair_that_carries_messages) {
  for (const VerbsType type : {VerbsType::kRc, VerbsType::kUc}) {
    World world;
    world.set(type);
    auto outcomes = world.connect();
    EXPECT_EQ(
        outcomes[0].link.summary,
        type == VerbsType::kRc
            ? "verbs RC over fake0 port 1 (ACTIVE), MTU 4096, GID 0 (::ffff:10.0.0.0), depths 1024/1024, messages "
              "up to 1073741824 bytes, warm-up done at attempt 1"
            : "verbs UC over fake0 port 1 (ACTIVE), MTU 1024, GID 0 (::ffff:10.0.0.0), depths 1024/1024, messages "
              "up to 16384 bytes, warm-up done at attempt 1");
    expect_clean(outcomes);
    EXPECT_EQ(world.hosts[0].objects + world.hosts[1].objects, 0);
    EXPECT_FALSE(world.hosts[0].overflowed || world.hosts[1].overflowed);
  }
}

TEST(ConnectVerbs, one_device_serves_the_pairs_to_several_peers) {
  World first, second;
  second.fabric = first.fabric;
  second.hosts[1].fabric = first.fabric;
  const auto device = VerbsDevice::open(first.hosts[0].library(), "");
  std::vector<std::byte> slab(1 << 16);
  VerbsLink links[2];
  for (World* world : {&first, &second}) {
    auto other = std::async(std::launch::async, [&] { return world->run(1); });
    VerbsLink& link = links[world == &second];
    link = connect_verbs(device, world->options[0], world->sockets.first.get(), 0, 1, 5000);
    EXPECT_EQ(other.get().error, "");
    const int before = first.hosts[0].registrations;
    EXPECT_TRUE(link.pair->register_memory(slab));
    EXPECT_EQ(first.hosts[0].registrations - before, world == &first ? 1 : 0);
  }
}

TEST(ConnectVerbs, takes_the_gid_of_the_sockets_address) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  World world;
  world.sockets.first = UniqueFd(::socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_EQ(::connect(world.sockets.first.get(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  world.sockets.second = UniqueFd(::accept(listener.get(), nullptr, nullptr));
  for (FakeHost& host : world.hosts) host.devices[0].gids.push_back(gid_entry(ipv4(127, 0, 0, 1)));
  auto outcomes = world.connect();
  EXPECT_NE(outcomes[0].link.summary.find("GID 2 (::ffff:127.0.0.1)"), std::string::npos) << outcomes[0].link.summary;
  expect_clean(outcomes);
}

TEST(ConnectVerbs, warm_up_can_be_left_out) {
  World world;
  for (VerbsOptions& options : world.options) options.warm_up = false;
  auto outcomes = world.connect();
  EXPECT_NE(outcomes[0].link.summary.find("not warmed up"), std::string::npos);
  expect_clean(outcomes);
}

TEST(ConnectVerbs, lost_and_late_messages_of_the_warm_up_leave_nothing_behind) {
  for (const bool late : {false, true}) {
    World world;
    world.set(VerbsType::kUc);
    world.hosts[0].late_sends = late ? 2 : 0;
    world.hosts[1].lost_sends = late ? 0 : 3;
    auto outcomes = world.connect();
    EXPECT_NE(outcomes[0].link.summary.find("at attempt 1"), std::string::npos) << outcomes[0].link.summary;
    expect_clean(outcomes);
  }
}

TEST(ConnectVerbs, a_fresh_pair_that_is_mute_in_one_direction_is_made_anew) {
  World world;
  world.set(VerbsType::kUc);
  world.hosts[1].mute_pairs = 1;
  auto outcomes = world.connect();
  EXPECT_NE(outcomes[0].link.summary.find("at attempt 2"), std::string::npos) << outcomes[0].link.summary;
  EXPECT_EQ(world.hosts[0].pairs_created, 2);
  EXPECT_EQ(world.hosts[1].pairs_created, 2);
  expect_clean(outcomes);
}

TEST(ConnectVerbs, a_direction_that_stays_mute_is_told_on_both_ranks) {
  World world;
  world.set(VerbsType::kRc);
  world.hosts[1].mute_pairs = 1000;
  const std::string text =
      "the warm-up failed 4 times with fake0 GID 0 (::ffff:10.0.0.{}), the last time because nothing arrived {} within "
      "200 ms; check the cable, that both GIDs are of one subnet, and for RoCE that UDP port 4791 is open, or choose "
      "another link (tcp)";
  world.expect_refused(fmt::format(fmt::runtime(text), 0, "from the peer"),
                       fmt::format(fmt::runtime(text), 1, "at the peer"));
  EXPECT_EQ(world.hosts[0].pairs_created, 4);
}

TEST(ConnectVerbsSoak, twenty_rounds_without_a_message_exhaust_an_attempt_of_uc) {
  World world;
  world.set(VerbsType::kUc);
  world.hosts[0].mute_pairs = world.hosts[1].mute_pairs = 1000;
  const int64_t start_us = now_us();
  const auto outcomes = world.connect();
  EXPECT_NE(outcomes[0].error.find("nothing arrived at either end within 2000 ms"), std::string::npos)
      << outcomes[0].error;
  EXPECT_EQ(world.hosts[1].pairs_created, 4);
  EXPECT_GE(now_us() - start_us, 4 * 2'000'000);
}

TEST(ConnectVerbs, a_pair_that_fails_in_the_warm_up_is_made_anew) {
  for (const FakeTamper tamper : {FakeTamper::kBadStatus, FakeTamper::kUnknownId, FakeTamper::kWrongLength}) {
    World world;
    world.set(VerbsType::kUc);
    world.hosts[0].tamper = tamper;  // of one completion only
    auto outcomes = world.connect();
    if (tamper != FakeTamper::kWrongLength) {  // which a send's completion does not show
      EXPECT_NE(outcomes[0].link.summary.find("at attempt 2"), std::string::npos) << outcomes[0].link.summary;
    }
    expect_clean(outcomes);
  }
}

TEST(ConnectVerbs, failures_of_the_warm_up_have_their_own_messages) {
  struct Case {
    const char* call;
    const char* problem;
  };
  for (const Case& expected : {Case{"post_recv", "the pair is cut off: post_recv was refused (Cannot allocate memory)"},
                               Case{"post_send", "the pair is cut off: post_send was refused (Cannot allocate memory)"},
                               Case{"poll_cq", "the pair is cut off: poll_cq gave -1 of 8 completions"},
                               Case{"", "a message of 16384 bytes arrived with other content than was sent"}}) {
    World world;
    world.set(VerbsType::kUc);
    if (*expected.call != 0) {
      world.hosts[0].failing[expected.call] = ENOMEM;
    } else {
      world.hosts[1].corrupt = true;
    }
    const auto outcomes = world.connect();
    EXPECT_NE(outcomes[0].error.find(fmt::format("the last time because {};", expected.problem)), std::string::npos)
        << outcomes[0].error;
    EXPECT_NE(outcomes[1].error.find("the last time because the peer's end of the pair failed;"), std::string::npos)
        << outcomes[1].error;
    EXPECT_EQ(world.hosts[0].objects + world.hosts[1].objects, 0);
  }
}

TEST(ConnectVerbs, what_one_rank_cannot_do_is_told_to_the_other) {
  struct Case {
    const char* call;
    const char* message;
  };
  for (const Case& expected :
       {Case{"query_gid",
             "query_gid of entry 0 failed: Cannot allocate memory; check the device's driver, or name another device"},
        Case{"create_qp",
             "fake0 makes no queue pair: create_qp (UC 1024/1024): Cannot allocate memory, create_qp (UC 256/64): "
             "Cannot "
             "allocate memory; check its limits, and what other programs hold of it"},
        Case{"modify INIT",
             "fake0 refused to bring its UC pair to INIT: Cannot allocate memory; check that its port 1 is up"},
        Case{"modify RTR",
             "fake0 refused to bring its UC pair to ready-to-receive: Cannot allocate memory; check that both GIDs are "
             "of "
             "one subnet, and that the peer's host answers"},
        Case{"modify RTS",
             "fake0 refused to bring its UC pair to ready-to-send: Cannot allocate memory; check the device's driver"},
        Case{"reg_mr",
             "reg_mr of 32768 bytes failed: Cannot allocate memory; raise the limit of locked memory (ulimit -l)"}}) {
    World world;
    world.set(VerbsType::kUc);
    world.hosts[1].failing[expected.call] = ENOMEM;
    world.expect_refused(std::string("rank 1 gave up: ") + expected.message, expected.message);
  }
}

TEST(ConnectVerbs, ranks_of_different_types_are_refused_on_both_sides) {
  World world;
  world.hosts[1].devices[0].has_rc = false;
  world.expect_refused("the peer's device makes UC pairs and ours RC: ask for UC on both ranks",
                       "the peer's device makes RC pairs and ours UC: ask for UC on both ranks");
}

TEST(ConnectVerbs, a_warm_up_on_one_side_only_is_refused_on_both_sides) {
  World world;
  world.options[1].warm_up = false;
  world.expect_refused("the warm-up is switched on here and off on the peer: give both ranks the same setting",
                       "the warm-up is switched off here and on on the peer: give both ranks the same setting");
}

TEST(ConnectVerbs, a_silent_peer_is_told_after_the_time_out) {
  World world;
  world.timeout_ms = 100;
  const int64_t start_us = now_us();
  EXPECT_EQ(world.run(0).error,
            "verbs link to rank 1: the exchange of addresses: the peer said nothing for 100 ms; check that its process "
            "is alive, or wait longer");
  EXPECT_LT(now_us() - start_us, 1'000'000);
}

TEST(ConnectVerbs, a_peer_that_closes_is_told) {
  World world;
  world.sockets.second.reset();
  EXPECT_EQ(
      world.run(0).error,
      "verbs link to rank 1: the exchange of addresses: the peer closed the connection; its own message says why");
}

// A frame's first bytes are {magic u32, version u16, step u16, rank u32, attempt u32}.
TEST(ConnectVerbs, frames_that_do_not_belong_are_refused) {
  struct Case {
    size_t at;
    uint8_t value;
    const char* message;
  };
  for (const Case& expected :
       {Case{0, 'x', "the peer sent what belongs to no verbs setup (it begins with 0x42524578): start both ranks anew"},
        Case{4, 9, "the peer's verbs setup has version 9 and ours 2: run the same program on both"},
        Case{6, 4,
             "in the exchange of addresses the peer is at step 4 of attempt 1, not at step 1 of attempt 1: start both "
             "ranks anew"},
        Case{8, 5, "rank 5 answered where rank 1 was expected: start both ranks anew"},
        Case{12, 3,
             "in the exchange of addresses the peer is at step 1 of attempt 3, not at step 1 of attempt 1: start both "
             "ranks anew"},
        Case{6, 5, ""}}) {
    World world;
    std::array<char, 256> frame = {'V', 'E', 'R', 'B', 2, 0,  1,    0,   1,   0,   0,
                                   0,   1,   0,   0,   0, 27, '\n', 'e', 'v', 'i', 'l'};
    frame[expected.at] = static_cast<char>(expected.value);
    ASSERT_EQ(::send(world.sockets.second.get(), frame.data(), frame.size(), 0), 256);
    const bool gives_up = *expected.message == 0;
    EXPECT_EQ(world.run(0).error,
              gives_up ? "rank 1 gave up: ??evil" : "verbs link to rank 1: " + std::string(expected.message));
  }
}

TEST(ConnectVerbs, a_peer_that_goes_on_after_this_rank_gave_up_is_told) {
  World world;
  world.hosts[0].failing["query_gid"] = ENOMEM;
  std::array<char, 512> frames = {};
  for (const size_t at : {0, 256}) {
    const std::array<char, 14> frame = {'V', 'E', 'R', 'B', 2, 0, 1, 0, 1, 0, 0, 0, 1, 0};
    std::ranges::copy(frame, frames.begin() + static_cast<int>(at));
  }
  ASSERT_EQ(::send(world.sockets.second.get(), frames.data(), frames.size(), 0), 512);
  EXPECT_EQ(world.run(0).error,
            "verbs link to rank 1: the verdict: the peer went on with the setup: start both ranks anew");
}

TEST(ConnectVerbs, both_ends_plan_with_the_same_limits_whatever_their_devices_grant) {
  for (const VerbsType type : {VerbsType::kRc, VerbsType::kUc}) {
    World world;
    world.set(type);
    FakeDevice& small = world.hosts[0].devices[0];
    FakeDevice& odd = world.hosts[1].devices[0];
    small.max_depth = 300;
    small.max_message_bytes = 1 << 20;
    odd.granted_factor = 3;
    odd.max_message_bytes = 20000;
    odd.transport = IBV_TRANSPORT_IWARP;
    auto outcomes = world.connect();
    ASSERT_EQ(outcomes[0].error + outcomes[1].error, "");
    const QueuePairLimits a = outcomes[0].link.pair->limits(), b = outcomes[1].link.pair->limits();
    EXPECT_EQ(a, b);
    EXPECT_EQ(a.send_depth, 256);
    EXPECT_EQ(a.receive_depth, 64);
    EXPECT_EQ(a.max_message_bytes, type == VerbsType::kRc ? 20000u : DS4_TP_RDMA_MAX_MSG);
    EXPECT_FALSE(a.carries_tags);
    // What an authenticating pair has left of them follows from them alone.
    for (auto& outcome : outcomes) {
      const std::array<std::byte, 32> key = {};
      const int rank = &outcome == &outcomes[1];
      const AuthenticatedQueuePair::Session session{key, 1, rank, 1 - rank};
      outcome.link.pair = std::make_unique<AuthenticatedQueuePair>(std::move(outcome.link.pair), session, 1 << 16);
    }
    EXPECT_EQ(outcomes[0].link.pair->limits(), outcomes[1].link.pair->limits());
    for (auto& outcome : outcomes) outcome.link.pair.reset();
  }
}

}  // namespace
}  // namespace coprime
