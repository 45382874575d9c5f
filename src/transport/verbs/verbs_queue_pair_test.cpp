#include "transport/verbs/verbs_queue_pair.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "transport/verbs/testing/fake_verbs.h"

namespace coprime {
namespace {

FakeDevice usual_device(uint8_t host) {
  FakeDevice device;
  device.gids = {gid_entry(ipv4(10, 0, 0, host))};
  return device;
}

// A host, its open device, one pair, and memory that the pair may use.
struct End {
  explicit End(const std::shared_ptr<FakeFabric>& fabric, FakeDevice config, VerbsType type, size_t memory_bytes)
      : host(fabric, {std::move(config)}), memory(memory_bytes) {
    device = VerbsDevice::open(host.library(), "");
    gid = choose_gid(device->library(), device->context(), device->port(), -1, std::nullopt);
    pair = VerbsQueuePair::create(device, type, 0);
    pair->initialize();
    ours = pair->end(gid);
    if (memory_bytes != 0) {
      EXPECT_TRUE(pair->register_memory(memory));
    }
  }

  WorkRequest request(uint64_t id, size_t at, size_t bytes, bool signaled = true) {
    return {.id = id, .data = memory.data() + at, .bytes = bytes, .signaled = signaled};
  }
  void receive(uint64_t id, size_t at, size_t bytes) {
    const WorkRequest one = request(id, at, bytes);
    pair->post_recv({&one, 1});
  }
  void send(uint64_t id, size_t at, size_t bytes, bool signaled = true) {
    const WorkRequest one = request(id, at, bytes, signaled);
    pair->post_send({&one, 1});
  }
  std::vector<Completion> poll(size_t room = 64) {
    std::vector<Completion> completions(room);
    completions.resize(static_cast<size_t>(pair->poll(completions)));
    return completions;
  }

  FakeHost host;
  std::vector<std::byte> memory;
  std::shared_ptr<VerbsDevice> device;
  GidChoice gid;
  std::unique_ptr<VerbsQueuePair> pair;
  VerbsEnd ours;
};

struct Ends {
  explicit Ends(VerbsType type = VerbsType::kUc, FakeDevice config_a = usual_device(1),
                FakeDevice config_b = usual_device(2), size_t memory_bytes = 1 << 16)
      : fabric(std::make_shared<FakeFabric>()),
        a(fabric, std::move(config_a), type, memory_bytes),
        b(fabric, std::move(config_b), type, memory_bytes) {}

  Ends& connect() {
    a.pair->connect(a.ours, b.ours, a.gid.index);
    b.pair->connect(b.ours, a.ours, b.gid.index);
    return *this;
  }

  std::shared_ptr<FakeFabric> fabric;
  End a, b;
};

std::string refusal(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
  return "no error";
}

TEST(VerbsQueuePair, a_message_lands_in_the_posted_receive) {
  for (const VerbsType type : {VerbsType::kRc, VerbsType::kUc}) {
    Ends ends(type);
    ends.connect();
    std::memset(ends.a.memory.data(), 0x5a, 1000);
    ends.b.receive(7, 100, 4096);
    ends.a.send(9, 0, 1000);
    const auto sent = ends.a.poll(), received = ends.b.poll();
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].kind, Completion::Kind::kSend);
    EXPECT_EQ(sent[0].id, 9u);
    ASSERT_EQ(received.size(), 1u);
    EXPECT_EQ(received[0].kind, Completion::Kind::kReceive);
    EXPECT_EQ(received[0].id, 7u);
    EXPECT_EQ(received[0].bytes, 1000u);
    EXPECT_EQ(std::memcmp(ends.b.memory.data() + 100, ends.a.memory.data(), 1000), 0);
    EXPECT_EQ(ends.b.memory[1100], std::byte{0});
  }
}

TEST(VerbsQueuePair, a_tag_travels_as_immediate_data_where_both_devices_have_it) {
  for (const bool one_has_none : {false, true}) {
    FakeDevice other = usual_device(2);
    if (one_has_none) other.transport = IBV_TRANSPORT_IWARP;
    Ends ends(VerbsType::kUc, usual_device(1), other);
    ends.connect();
    const uint32_t tags[2] = {0x01020304, 0xfffffffe};
    for (uint64_t i = 0; i < 2; ++i) {
      ends.b.receive(i, 0, 100);
      WorkRequest request = ends.a.request(i, 0, 10 * i);
      request.tag = tags[i];
      ends.a.pair->post_send({&request, 1});
    }
    const auto received = ends.b.poll();
    ASSERT_EQ(received.size(), 2u);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(received[i].tag, one_has_none ? 0 : tags[i]);
    EXPECT_EQ(ends.a.pair->limits().carries_tags, !one_has_none);
    EXPECT_EQ(ends.b.pair->limits().carries_tags, !one_has_none);
  }
}

TEST(VerbsQueuePair, an_empty_message_is_a_message) {
  Ends ends;
  ends.connect();
  ends.b.receive(1, 0, 0);
  ends.a.send(1, 0, 0);
  ASSERT_EQ(ends.b.poll().size(), 1u);
  EXPECT_EQ(ends.a.pair->failure() + ends.b.pair->failure(), "");
}

TEST(VerbsQueuePair, uc_loses_a_message_without_a_receive_and_rc_waits) {
  for (const VerbsType type : {VerbsType::kRc, VerbsType::kUc}) {
    Ends ends(type);
    ends.connect();
    const bool loses = type == VerbsType::kUc;
    EXPECT_EQ(ends.a.pair->limits().loses_unposted, loses);
    ends.a.send(1, 0, 100);
    ends.b.receive(1, 0, 100);
    EXPECT_EQ(ends.b.poll().size(), loses ? 0u : 1u);
    EXPECT_EQ(ends.a.poll().size(), 1u);
  }
}

TEST(VerbsQueuePair, is_rc_where_the_device_has_it_else_uc) {
  EXPECT_STREQ(Ends(VerbsType::kProbe).a.pair->name(), "verbs RC");
  FakeDevice without = usual_device(1);
  without.has_rc = false;
  EXPECT_STREQ(Ends(VerbsType::kProbe, without, without).a.pair->name(), "verbs UC");
}

TEST(VerbsQueuePair, sets_the_attributes_of_its_type) {
  Ends rc(VerbsType::kRc);
  rc.connect();
  EXPECT_EQ(rc.a.host.rtr.max_dest_rd_atomic, 1);
  EXPECT_EQ(rc.a.host.rtr.min_rnr_timer, 12);
  EXPECT_EQ(rc.a.host.rts.timeout, 14);
  EXPECT_EQ(rc.a.host.rts.retry_cnt, 3);
  EXPECT_EQ(rc.a.host.rts.rnr_retry, 7);
  EXPECT_EQ(rc.a.host.rts.max_rd_atomic, 1);
  EXPECT_EQ(rc.a.host.created.cap.max_send_sge, 1u);
  EXPECT_EQ(rc.a.host.created.cap.max_inline_data, 0u);
  EXPECT_EQ(rc.a.pair->mtu(), 4096);

  Ends uc(VerbsType::kUc);
  uc.connect();
  EXPECT_EQ(uc.a.host.rtr.ah_attr.grh.hop_limit, 1);
  EXPECT_EQ(uc.a.host.rtr.ah_attr.dlid, 7);
  EXPECT_EQ(uc.a.pair->mtu(), 1024);
}

TEST(VerbsQueuePair, takes_the_smaller_of_both_ends_limits) {
  FakeDevice small = usual_device(2);
  small.mtu = IBV_MTU_2048;
  small.max_depth = 300;
  small.max_message_bytes = 5000;
  Ends ends(VerbsType::kRc, usual_device(1), small);
  ends.connect();
  for (const End* end : {&ends.a, &ends.b}) {
    EXPECT_EQ(end->pair->mtu(), 2048);
    EXPECT_EQ(end->pair->limits().send_depth, 256);
    EXPECT_EQ(end->pair->limits().receive_depth, 64);
    EXPECT_EQ(end->pair->limits().max_message_bytes, 5000u);
  }
}

TEST(VerbsQueuePair, messages_are_capped_at_16384_on_uc_and_by_the_port_on_rc_unless_told_otherwise) {
  Ends ends;
  const auto cap = [&](VerbsType type, size_t wanted) {
    return VerbsQueuePair::create(ends.a.device, type, wanted)->limits().max_message_bytes;
  };
  EXPECT_EQ(cap(VerbsType::kUc, 0), 16384u);
  EXPECT_EQ(cap(VerbsType::kUc, 1 << 20), 1u << 20);
  EXPECT_EQ(cap(VerbsType::kRc, 0), 1u << 30);
  EXPECT_EQ(cap(VerbsType::kRc, 8192), 8192u);
  EXPECT_EQ(cap(VerbsType::kRc, size_t{1} << 40), 1u << 30);
}

TEST(VerbsQueuePair, believes_granted_depths_up_to_a_cap_and_to_the_completion_queue) {
  FakeDevice generous = usual_device(1);
  generous.granted_factor = 100;
  Ends ends(VerbsType::kUc, generous, usual_device(2));
  const QueuePairLimits& limits = ends.a.pair->limits();
  EXPECT_EQ(limits.send_depth, 1024);  // 102400 granted, 4096 believed, and 2048 completions for both queues
  EXPECT_EQ(limits.receive_depth, 1024);

  FakeDevice small = usual_device(1);
  small.max_depth = 256;
  Ends others(VerbsType::kUc, small, usual_device(2));
  EXPECT_EQ(others.a.pair->limits().send_depth, 256);
  EXPECT_EQ(others.a.pair->limits().receive_depth, 64);
}

TEST(VerbsQueuePair, full_queues_move_at_every_depth_and_poll_batch) {
  constexpr size_t kBytes = 8;
  for (const uint32_t max_depth : {256u, 1024u}) {
    for (const size_t batch : {1u, 7u, 64u}) {
      FakeDevice config = usual_device(1);
      config.max_depth = max_depth;
      Ends ends(VerbsType::kUc, config, config);
      ends.connect();
      const size_t depth = static_cast<size_t>(ends.b.pair->limits().receive_depth);
      ASSERT_EQ(depth, max_depth == 256 ? 64u : 1024u);
      ASSERT_GE(static_cast<size_t>(ends.a.pair->limits().send_depth), depth);
      uint64_t next = 1;
      for (int round = 0; round < 3; ++round) {  // more than once around the rings
        std::vector<WorkRequest> receives, sends;
        for (size_t i = 0; i < depth; ++i) {
          const uint64_t id = next + i;
          std::memcpy(ends.a.memory.data() + i * kBytes, &id, kBytes);
          sends.push_back(ends.a.request(id, i * kBytes, kBytes));
          receives.push_back(ends.b.request(id, i * kBytes, kBytes));
        }
        ends.b.pair->post_recv(receives);
        ends.a.pair->post_send(sends);
        uint64_t sent = next, received = next;
        while (sent < next + depth || received < next + depth) {
          const auto of_a = ends.a.poll(batch), of_b = ends.b.poll(batch);
          ASSERT_FALSE(of_a.empty() && of_b.empty());
          for (const Completion& completion : of_a) ASSERT_EQ(completion.id, sent++);
          for (const Completion& completion : of_b) ASSERT_EQ(completion.id, received++);
        }
        next += depth;
        ASSERT_EQ(std::memcmp(ends.a.memory.data(), ends.b.memory.data(), depth * kBytes), 0);
      }
      EXPECT_EQ(ends.a.host.longest_chain, 64);  // longer ones are cut
      EXPECT_EQ(ends.b.host.longest_chain, 64);
      EXPECT_FALSE(ends.a.host.overflowed || ends.b.host.overflowed);
    }
  }
}

TEST(VerbsQueuePair, completions_of_unsignaled_sends_are_swallowed) {
  for (const bool told : {false, true}) {
    Ends ends;
    ends.a.host.completes_unsignaled = told;
    ends.connect();
    EXPECT_FALSE(ends.a.pair->limits().completes_unsignaled);
    std::vector<uint64_t> ids;
    for (uint64_t id = 1; id <= 3000; ++id) {  // far beyond the depth: what is swallowed must free its place
      ends.b.receive(id, 0, 8);
      ends.a.send(id, 0, 8, id % 10 == 0);
      for (const Completion& completion : ends.a.poll(3)) ids.push_back(completion.id);
      ASSERT_EQ(ends.b.poll().size(), 1u);
    }
    ASSERT_EQ(ends.a.pair->failure(), "");
    ASSERT_EQ(ids.size(), 300u);
    for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(ids[i], 10 * (i + 1));
  }
}

TEST(VerbsQueuePair, completions_that_cannot_be_end_the_pair_by_name) {
  struct Case {
    FakeTamper tamper;
    const char* failure;
  };
  for (const Case& expected :
       {Case{FakeTamper::kDuplicate, "is cut off: the device completed receive 0 twice"},
        Case{FakeTamper::kWrongLength, "sent 101 bytes where there is room for 100"},
        Case{FakeTamper::kBadStatus,
             "is cut off: receive 0 ended with status 12 (transport retry counter exceeded, vendor's code 0x81)"},
        Case{FakeTamper::kUnknownId, "is cut off: the device completed receive 5000, which was never posted"},
        Case{FakeTamper::kSkip, "is cut off: the device completed receive 1 before receive 0"},
        Case{FakeTamper::kWrongOpcode, "is cut off: the device completed receive 0 as a send"},
        Case{FakeTamper::kNoImmediate, "is cut off: the device completed receive 0 without its immediate data"},
        Case{FakeTamper::kTooMany, "is cut off: poll_cq gave 17 of 16 completions"}}) {
    Ends ends;
    ends.connect();
    for (uint64_t id = 1; id <= 3; ++id) ends.b.receive(id, 0, 100);
    ends.a.send(1, 0, 100);
    ends.b.host.tamper = expected.tamper;
    const auto completions = ends.b.poll();
    EXPECT_EQ(ends.b.pair->failure(), expected.failure);
    if (expected.tamper == FakeTamper::kBadStatus) {
      ASSERT_EQ(completions.size(), 1u);
      EXPECT_EQ(completions[0].status, static_cast<uint32_t>(IBV_WC_RETRY_EXC_ERR));
      EXPECT_EQ(completions[0].id, 1u);
    } else {
      EXPECT_EQ(completions.size(), expected.tamper == FakeTamper::kDuplicate ? 1u : 0u);
    }
    // It stays failed.
    ends.a.send(2, 0, 100);
    EXPECT_TRUE(ends.b.poll().empty());
    EXPECT_EQ(ends.b.pair->failure(), expected.failure);
  }
}

TEST(VerbsQueuePair, refused_posts_and_polls_end_the_pair_by_name) {
  struct Case {
    const char* call;
    const char* failure;
  };
  for (const Case& expected : {Case{"post_recv", "is cut off: post_recv was refused (Cannot allocate memory)"},
                               Case{"post_send", "is cut off: post_send was refused (Cannot allocate memory)"},
                               Case{"poll_cq", "is cut off: poll_cq gave -1 of 16 completions"}}) {
    Ends ends;
    ends.connect();
    ends.a.host.failing[expected.call] = ENOMEM;
    ends.a.receive(1, 0, 100);
    ends.a.send(1, 0, 100);
    EXPECT_TRUE(ends.a.poll().empty());
    EXPECT_EQ(ends.a.pair->failure(), expected.failure);
  }
}

TEST(VerbsQueuePair, a_device_that_makes_none_tells_every_refusal) {
  Ends ends;
  ends.a.host.failing["create_cq"] = ENOMEM;
  EXPECT_EQ(
      refusal([&] { VerbsQueuePair::create(ends.a.device, VerbsType::kUc, 0); }),
      "fake0 makes no queue pair: create_cq (UC 1024/1024): Cannot allocate memory, create_cq (UC 256/64): Cannot "
      "allocate memory; check its limits, and what other programs hold of it");
  ends.a.host.failing.clear();
  ends.a.host.devices[0].max_depth = 10;
  ends.a.host.devices[0].has_rc = false;
  EXPECT_EQ(refusal([&] { VerbsQueuePair::create(ends.a.device, VerbsType::kProbe, 0); }),
            "fake0 makes no queue pair: create_qp (RC 1024/1024): Operation not supported, create_qp (RC 256/64): "
            "Operation not supported, create_qp (UC 1024/1024): Cannot allocate memory, create_qp (UC 256/64): Cannot "
            "allocate memory; check its limits, and what other programs hold of it");
}

TEST(VerbsQueuePair, states_that_the_device_refuses_are_told) {
  struct Case {
    const char* call;
    const char* message;
  };
  for (const Case& expected :
       {Case{"modify INIT",
             "fake0 refused to bring its UC pair to INIT: Invalid argument; check that its port 1 is up"},
        Case{
            "modify RTR",
            "fake0 refused to bring its UC pair to ready-to-receive: Invalid argument; check that both GIDs are of one "
            "subnet, and that the peer's host answers"},
        Case{"modify RTS",
             "fake0 refused to bring its UC pair to ready-to-send: Invalid argument; check the device's driver"}}) {
    Ends ends;
    ends.a.host.failing[expected.call] = EINVAL;
    EXPECT_EQ(refusal([&] {
                ends.a.pair = VerbsQueuePair::create(ends.a.device, VerbsType::kUc, 0);
                ends.a.pair->initialize();
                ends.connect();
              }),
              expected.message);
  }
}

TEST(VerbsQueuePair, ends_that_do_not_fit_are_refused) {
  Ends ends;
  VerbsEnd other = ends.b.ours;
  other.reliable = true;
  EXPECT_EQ(refusal([&] { ends.a.pair->connect(ends.a.ours, other, 0); }),
            "the peer's device makes RC pairs and ours UC: ask for UC on both ranks");
  other = ends.b.ours;
  other.mtu = IBV_MTU_4096;
  EXPECT_EQ(refusal([&] { ends.a.pair->connect(ends.a.ours, other, 0); }),
            "the peer's MTU is 4096 and ours 1024: give both interfaces the same");
  other.mtu = 77;
  EXPECT_EQ(refusal([&] { ends.a.pair->connect(ends.a.ours, other, 0); }),
            "the peer's MTU is unknown (77) and ours 1024: give both interfaces the same");
  other = ends.b.ours;
  other.receive_depth = -1;
  EXPECT_EQ(refusal([&] { ends.a.pair->connect(ends.a.ours, other, 0); }),
            "the peer offers messages of 16384 bytes and depths of 1024/-1: run the same version on both");

  FakeDevice narrow = usual_device(1);
  narrow.mtu = IBV_MTU_512;
  EXPECT_EQ(refusal([&] { Ends(VerbsType::kUc, narrow); }),
            "fake0 runs with an MTU of 512 and UC needs 1024: raise its interface's MTU");
  FakeDevice silent = usual_device(1);
  silent.max_message_bytes = 0;
  EXPECT_EQ(refusal([&] { Ends(VerbsType::kUc, silent); }),
            "fake0 carries no message (its port's largest is 0 bytes): choose another device");
}

TEST(VerbsQueuePair, memory_that_the_provider_refuses_is_told_by_false) {
  Ends ends;
  std::vector<std::byte> other(10);
  ends.a.host.failing["reg_mr"] = ENOMEM;
  EXPECT_FALSE(ends.a.pair->register_memory(other));
}

TEST(VerbsQueuePair, everything_is_given_back) {
  auto fabric = std::make_shared<FakeFabric>();
  FakeHost host(fabric, {usual_device(1)});
  {
    std::vector<std::byte> memory(100);
    const auto pair = VerbsQueuePair::create(VerbsDevice::open(host.library(), ""), VerbsType::kProbe, 0);
    EXPECT_TRUE(pair->register_memory(memory));
    EXPECT_EQ(host.objects, 5);  // context, domain, memory, completion queue, queue pair
  }
  EXPECT_EQ(host.objects, 0);
}

TEST(VerbsQueuePairDeathTest, requests_beyond_the_limits_are_broken_invariants) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Ends ends;
  ends.connect();
  for (uint64_t id = 1; id <= 1024; ++id) ends.a.receive(id, 0, 8);
  EXPECT_DEATH(ends.a.receive(1025, 0, 8), "1024 requests are outstanding");
  EXPECT_DEATH(ends.a.send(1, 0, 16385), "16385 bytes in a message of at most 16384");
  EXPECT_DEATH(ends.a.send(1, ends.a.memory.size() - 7, 8), "8 bytes at 0x[0-9a-f]+ lie in no registered memory");
}

}  // namespace
}  // namespace coprime
