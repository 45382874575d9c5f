// One machine against a recording port, whose completions the tests make up; and two machines with real memory between
// them.
#include "gate/pair_machine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <vector>

namespace coprime {
namespace {

constexpr RowClass kOne = RowClass::kOne, kEight = RowClass::kUpTo8, kMany = RowClass::kUpTo32, kBulk = RowClass::kBulk;
constexpr uint32_t kTag = 77;

struct RecordingPort final : PairPort {
  void post_recv(std::span<const WorkRequest> chain) override {
    longest_chain = std::max(longest_chain, chain.size());
    receives.insert(receives.end(), chain.begin(), chain.end());
  }
  void post_send(std::span<const WorkRequest> chain) override {
    longest_chain = std::max(longest_chain, chain.size());
    sends.insert(sends.end(), chain.begin(), chain.end());
  }
  void send_barrier(const Barrier& barrier) override { barriers.push_back(barrier); }

  std::deque<WorkRequest> receives, sends;
  std::deque<Barrier> barriers;
  size_t longest_chain = 0;
};

// One end with its memory. Rows of `row_bytes`; the slots are as large as the machine asks.
struct End {
  End(const GateSchedule& schedule, const QueuePairLimits& limits, bool staged = false)
      : plan(schedule, limits), slot(std::max(plan.largest_capacity(), largest_slot_bytes(schedule))) {
    const auto part = [&](size_t bytes) {
      memory.push_back(std::vector<std::byte>(bytes));
      return std::span(memory.back());
    };
    buffers.window_in = {part(slot), part(slot)};
    buffers.bulk.in = part(slot);
    buffers.dummy = part(plan.dummy_bytes());
    if (staged) {
      buffers.window_out = {part(slot), part(slot)};
      buffers.bulk.staging_in = part(3 * plan.chunk_bytes());
      buffers.bulk.staging_out = part(3 * plan.chunk_bytes());
    }
    out = {part(slot), part(slot)};
  }

  void start(uint64_t sequence, int entry, size_t bytes, size_t incoming) {
    machine.start(port, {.sequence = sequence,
                         .entry = entry,
                         .tag = kTag,
                         .out = out[sequence & 1].first(bytes),
                         .incoming = incoming});
  }
  // The peer's barrier, equal to this end's.
  void cross() {
    machine.on_barrier(port, port.barriers.front());
    port.barriers.pop_front();
  }
  // The peer's next message, as long as it must be.
  void receive(size_t bytes, uint32_t tag = 0) {
    const WorkRequest receive = port.receives.front();
    port.receives.pop_front();
    machine.on_completion(port, {.kind = Completion::Kind::kReceive, .id = receive.id, .bytes = bytes, .tag = tag});
  }
  void complete_sends() {
    for (; !port.sends.empty(); port.sends.pop_front())
      machine.on_completion(port, {.kind = Completion::Kind::kSend, .id = port.sends.front().id});
  }

  std::deque<std::vector<std::byte>> memory;
  WindowPlan plan;
  size_t slot;
  PairBuffers buffers;
  std::array<std::span<std::byte>, 2> out;
  RecordingPort port;
  PairMachine machine{&plan, &buffers};
};

GateSchedule schedule_of(int entries, int64_t row_bytes, int max_rows = 64) {
  GateSchedule schedule;
  for (int i = 0; i < entries; ++i) schedule.push_back({GateKind::kFfn, i, row_bytes, max_rows});
  return schedule;
}

QueuePairLimits driver_limits() {
  return {.max_message_bytes = DS4_TP_RDMA_MAX_MSG, .send_depth = 1024, .receive_depth = 1024, .loses_unposted = true};
}

// A window of 16 gates of two chunks, in its first gate.
struct Armed : End {
  Armed() : End(schedule_of(20, 24576), driver_limits()) {
    machine.begin_step(kOne, kOne);
    start(1, 0, 24576, 24576);
    cross();
  }
};

TEST(PairMachine, ArmsSixteenGatesOfWhichOnlyTheLastChunksCarryTheSequence) {
  End end(schedule_of(20, 24576), driver_limits());
  end.machine.begin_step(kOne, kOne);
  end.start(1, 0, 24576, 24576);
  ASSERT_EQ(end.port.receives.size(), 32u);
  EXPECT_EQ(end.port.longest_chain, 2u);
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(end.port.receives[i].id, i % 2 == 0 ? 0 : i / 2 + 1);
    EXPECT_EQ(end.port.receives[i].bytes, i % 2 == 0 ? 16384u : 8192u);
  }
  ASSERT_EQ(end.port.barriers.size(), 1u);
  EXPECT_EQ(end.port.barriers[0].kind, 0xD1u);
  EXPECT_TRUE(end.port.sends.empty());
  end.cross();
  ASSERT_EQ(end.port.sends.size(), 2u);
  EXPECT_TRUE(end.port.sends[0].signaled && end.port.sends[1].signaled);
  EXPECT_EQ(end.port.sends[1].id, 1u);
  EXPECT_EQ(end.port.sends[1].data, end.out[1].data() + 16384);
}

TEST(PairMachine, AGateIsDoneWithItsLastChunkAndThenPostsTheSixteenthAhead) {
  Armed end;
  end.receive(16384);
  EXPECT_FALSE(end.machine.done());
  EXPECT_EQ(end.port.receives.size(), 31u);
  end.receive(8192);
  EXPECT_TRUE(end.machine.done());
  EXPECT_EQ(end.port.receives.back().id, 17u);
  EXPECT_EQ(end.machine.arrival().data(), end.buffers.window_in[1].data());
}

TEST(PairMachine, DrainsWithSixteenTimesTheChunksThenBulk) {
  Armed end;
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    if (sequence > 1) end.start(sequence, static_cast<int>(sequence) - 1, 24576, 24576);
    end.receive(16384);
    end.receive(8192);
    ASSERT_TRUE(end.machine.done());
  }
  end.complete_sends();
  end.machine.begin_step(kBulk, kOne);
  end.start(21, 0, 50 * 24576, 0);
  ASSERT_EQ(end.port.barriers.front().kind, 0xB16u);
  EXPECT_TRUE(end.port.sends.empty());
  end.cross();
  ASSERT_EQ(end.port.sends.size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(end.port.sends[i].id, (uint64_t{1} << 63 | i));
  EXPECT_EQ(end.machine.timeout_text(), "timeout draining RDMA receive window (0/32)");
  EXPECT_EQ(end.machine.closed_text(), "peer disconnected while draining RDMA receives");
  for (int i = 0; i < 32; ++i) end.receive(1);
  EXPECT_EQ(end.machine.timeout_text(), "timeout draining RDMA receive window (32/32)");
  end.complete_sends();
  EXPECT_EQ(end.port.barriers.front().kind, kBulkWindowBarrier);
  end.cross();
  EXPECT_EQ(end.port.sends.size(), 75u);
  EXPECT_EQ(end.port.longest_chain, 64u);
  EXPECT_EQ(end.machine.rearms(), 1u);
}

TEST(PairMachine, FramedSendsFillTheirReceives) {
  QueuePairLimits limits = driver_limits();
  limits.frame_bytes = 4096;
  End end(schedule_of(1, 24576), limits);
  end.machine.begin_step(kOne, kOne);
  end.start(1, 0, 100, 5);
  end.cross();
  EXPECT_EQ(end.port.sends[0].bytes, 16384u);
  EXPECT_EQ(end.port.sends[1].bytes, 8192u);
  end.receive(16384);
  end.receive(8192);
  EXPECT_TRUE(end.machine.done());
  EXPECT_EQ(end.machine.arrival().size(), 5u);
}

TEST(PairMachine, SendsWaitForRoomInTheSendQueue) {
  QueuePairLimits limits = driver_limits();
  limits.send_depth = 2;
  End end(schedule_of(20, 16384), limits);
  end.machine.begin_step(kOne, kOne);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    end.start(sequence, static_cast<int>(sequence) - 1, 16384, 16384);
    if (sequence == 1) end.cross();
    end.receive(16384);
  }
  EXPECT_FALSE(end.machine.done());
  EXPECT_EQ(end.port.sends.size(), 2u);
  end.complete_sends();
  EXPECT_TRUE(end.machine.done());
}

TEST(PairMachine, BadCompletionsEndIt) {
  const auto receive = [](uint64_t id, size_t bytes, uint32_t status = 0) {
    return Completion{.kind = Completion::Kind::kReceive, .status = status, .id = id, .bytes = bytes};
  };
  const auto send = [](uint64_t id, uint32_t status = 0) {
    return Completion{.kind = Completion::Kind::kSend, .status = status, .id = id};
  };
  const uint64_t first_send = SendLedger::gate_send_id(1, 1);
  struct Case {
    std::vector<Completion> completions;
    PairFaultKind kind;
    const char* text;
  };
  for (const Case& c : std::vector<Case>{
           {{receive(0, 16384, 5)}, PairFaultKind::kReceiveStatus, "receive 0x0 failed with status 5"},
           {{send(first_send, 12)}, PairFaultKind::kSendStatus, "failed with status 12"},
           {{receive(9, 16384)}, PairFaultKind::kUnexpectedReceive, "unknown receive 0x9"},
           {{receive(0, 16384), receive(1, 8192), receive(1, 8192)},
            PairFaultKind::kDuplicateReceive,
            "duplicate completion of receive 0x1"},
           {{receive(0, 0)}, PairFaultKind::kEmptyReceive, "zero bytes"},
           {{receive(0, 16385)}, PairFaultKind::kReceiveLength, "has 16385 bytes, 16384 were expected"},
           {{receive(0, 16384), receive(1, 8191)}, PairFaultKind::kReceiveLength, "24575 bytes, 24576 were expected"},
           {{receive(0, 16384), receive(1, 8192), receive(0, 16384), receive(2, 8192), receive(0, 16384)},
            PairFaultKind::kPeerAhead,
            "after seq 2"},
           {{send(first_send), send(first_send)}, PairFaultKind::kDuplicateSend, "duplicate completion of send"},
           {{send(7)}, PairFaultKind::kUnexpectedSend, "unknown send 0x7"},
           {{send(first_send), send(1), send(1)}, PairFaultKind::kTooManySends, "while no send is outstanding"},
       }) {
    SCOPED_TRACE(c.text);
    Armed end;
    for (const Completion& completion : c.completions) end.machine.on_completion(end.port, completion);
    EXPECT_EQ(end.machine.fault().kind, c.kind);
    EXPECT_NE(end.machine.fault_text().find(c.text), std::string::npos) << end.machine.fault_text();
    EXPECT_FALSE(end.machine.done());
    // It refuses everything from now on.
    const size_t posted = end.port.receives.size() + end.port.sends.size();
    end.machine.on_completion(end.port, receive(0, 16384));
    end.machine.begin_step(kOne, kOne);
    end.start(2, 1, 24576, 24576);
    EXPECT_EQ(end.port.receives.size() + end.port.sends.size(), posted);
    EXPECT_EQ(end.machine.fault().kind, c.kind);
  }
}

// The receives of gates 1 and 2 have two chunks each; gate 1 is on its way, kTag is its gate.
TEST(PairMachine, AMessageInTheWrongReceiveIsNamed) {
  QueuePairLimits limits = driver_limits();
  limits.carries_tags = true;
  struct Case {
    std::vector<uint32_t> tags;
    const char* text;  // of the fault of the last one; empty: the gate is done
  };
  const char* const lost = ": the link lost or moved a message, or the ranks are at different gates";
  const char* const other_gate =
      "a message of another gate in the receive of seq 1 chunk {}: the ranks are at "
      "different gates";
  for (const Case& c : std::vector<Case>{
           {{chunk_tag(kTag, 1, 0), chunk_tag(kTag, 1, 1)}, ""},
           {{chunk_tag(kTag, 1, 1)}, "message of seq 1 chunk 1 in the receive of seq 1 chunk 0"},
           {{chunk_tag(kTag, 1, 0), chunk_tag(kTag, 2, 0)}, "message of seq 2 chunk 0 in the receive of seq 1 chunk 1"},
           {{chunk_tag(kTag, 1, 0), chunk_tag(kTag, 0, 1)}, "message of seq 0 chunk 1 in the receive of seq 1 chunk 1"},
           {{chunk_tag(kTag, 1, 0), chunk_tag(kTag + 1, 1, 1)}, "another gate, chunk 1"},
           {{chunk_tag(kTag + 1, 1, 0), chunk_tag(kTag + 1, 1, 1)}, "another gate, chunk 0"},
           {{dummy_tag(1, 0)}, "another gate, chunk 0"},
       }) {
    SCOPED_TRACE(c.text);
    End end(schedule_of(20, 24576), limits);
    end.machine.begin_step(kOne, kOne);
    end.start(1, 0, 24576, 24576);
    end.cross();
    for (size_t i = 0; i < c.tags.size(); ++i) end.receive(i == 0 ? 16384 : 8192, c.tags[i]);
    std::string expected = c.text;
    if (expected.starts_with("another gate")) {
      expected = fmt::format(fmt::runtime(other_gate), expected.back());
    } else if (!expected.empty()) {
      expected += lost;
    }
    EXPECT_EQ(end.machine.fault_text(), expected);
    EXPECT_EQ(end.machine.done(), expected.empty());
  }
}

// Sequences and chunks of any size are named by the nearest ones that have their low bits.
TEST(PairMachine, TagsSayWhichMessageTheyAreFar) {
  static_assert(chunk_tag(kTag, 5000, 1025) != chunk_tag(kTag, 5001, 1025));
  static_assert(chunk_tag(kTag, 5000, 1025) != chunk_tag(kTag, 5000, 1026));
  static_assert(chunk_tag(kTag, 5000, 1025) != dummy_tag(5000, 1025));
  QueuePairLimits limits = driver_limits();
  limits.carries_tags = true;
  End end(schedule_of(1, 64), limits);
  for (uint64_t sequence = 1; sequence < 4097; ++sequence) {
    end.machine.begin_step(kOne, kOne);
    end.start(sequence, 0, 64, 64);
    if (sequence == 1) end.cross();
    end.receive(64, chunk_tag(kTag, sequence, 0));
    ASSERT_TRUE(end.machine.done()) << end.machine.fault_text();
    end.complete_sends();
  }
  end.machine.begin_step(kOne, kOne);
  end.start(4097, 0, 64, 64);
  end.receive(64, chunk_tag(kTag, 4095, 0));
  EXPECT_EQ(end.machine.fault_text().find("message of seq 4095 chunk 0 in the receive of seq 4097 chunk 0"), 0u)
      << end.machine.fault_text();
}

TEST(PairMachine, ADifferentBarrierEndsIt) {
  End end(schedule_of(1, 64), driver_limits());
  end.machine.begin_step(kOne, kOne);
  end.start(1, 0, 64, 64);
  Barrier other = end.port.barriers[0];
  other.kind = kVerifyBarrier;
  end.machine.on_barrier(end.port, other);
  EXPECT_EQ(end.machine.fault().kind, PairFaultKind::kBarrier);
  EXPECT_NE(end.machine.fault_text().find("crossed barrier 0xB5"), std::string::npos) << end.machine.fault_text();
  EXPECT_NE(end.machine.fault_text().find("where 0xD1"), std::string::npos) << end.machine.fault_text();
}

TEST(PairMachine, GatesOutOfOrderEndIt) {
  {
    End end(schedule_of(3, 64), driver_limits());
    end.machine.begin_step(kOne, kOne);
    end.start(1, 2, 64, 64);
    EXPECT_EQ(end.machine.fault_text(), "gate order broke: layer 2 gate FFN vs seq 1");
  }
  {
    End end(schedule_of(3, 64), driver_limits());
    end.machine.begin_step(kOne, kOne);
    end.start(2, 0, 64, 64);
    EXPECT_EQ(end.machine.fault().kind, PairFaultKind::kGateOrder);
  }
  {
    QueuePairLimits limits = driver_limits();
    limits.receive_depth = 4;
    End end(schedule_of(3, 64), limits);
    ASSERT_EQ(end.plan.service(kOne), Service::kVerifyWindow);
    end.machine.begin_step(kOne, kOne);
    end.start(1, 0, 64, 64);
    EXPECT_EQ(end.port.barriers[0].kind, 0xB5u);
    end.cross();
    ASSERT_EQ(end.port.receives.size(), 2u);
    EXPECT_EQ(end.port.receives[1].id, kVerifyTag | 2);
    end.receive(64);
    ASSERT_TRUE(end.machine.done());
    end.machine.begin_step(kOne, kOne);
    EXPECT_EQ(end.machine.fault_text(), "verify window ended after 1 of 3 gates, at seq 1");
  }
}

TEST(BulkExchange, RefusesWhileADecodeWindowIsActiveAndWithoutRoomForAMessage) {
  const WindowPlan plan(schedule_of(1, 16384), driver_limits());
  std::vector<std::byte> memory(65536);
  BulkBuffers buffers{.in = memory};
  const Flight flight{.sequence = 5, .out = memory, .incoming = 65536};
  BulkExchange bulk;
  EXPECT_FALSE(bulk.begin(plan, buffers, flight, false));
  EXPECT_EQ(bulk.begin(plan, buffers, flight, true).kind, PairFaultKind::kBulkRefused);
  buffers.staging_in = buffers.staging_out = std::span(memory).first(16383);
  EXPECT_EQ(bulk.begin(plan, buffers, flight, false).kind, PairFaultKind::kBulkRefused);
}

TEST(BulkExchange, BadCompletionsAreRefused) {
  const WindowPlan plan(schedule_of(1, 16384), driver_limits());
  std::vector<std::byte> memory(65536);
  const BulkBuffers buffers{.in = memory};
  const Flight flight{.sequence = 1, .out = memory, .incoming = 40000};
  RecordingPort port;
  BulkExchange bulk;
  ASSERT_FALSE(bulk.begin(plan, buffers, flight, false));
  bulk.post_receives(plan, buffers, flight, port);
  bulk.open_sends(plan, buffers, flight);
  bulk.post_sends(plan, buffers, flight, port);
  ASSERT_EQ(port.receives.size(), 3u);
  ASSERT_EQ(port.sends.size(), 4u);
  const auto receive = [&](uint64_t id, size_t bytes) {
    return bulk.on_receive(plan, flight, {.kind = Completion::Kind::kReceive, .id = id, .bytes = bytes}).kind;
  };
  EXPECT_EQ(receive(kBulkTag | 3, 16384), PairFaultKind::kUnexpectedReceive);
  EXPECT_EQ(receive(1, 16384), PairFaultKind::kUnexpectedReceive);
  EXPECT_EQ(receive(kBulkTag | 2, 7232), PairFaultKind::kNone);
  EXPECT_EQ(receive(kBulkTag | 2, 7232), PairFaultKind::kDuplicateReceive);
  EXPECT_EQ(receive(kBulkTag | 0, 16383), PairFaultKind::kReceiveLength);
  EXPECT_EQ(bulk.on_send({.id = kBulkTag | 4}).kind, PairFaultKind::kUnexpectedSend);
  EXPECT_EQ(bulk.on_send({.id = kBulkTag | 1}).kind, PairFaultKind::kNone);
  EXPECT_EQ(bulk.on_send({.id = kBulkTag | 1}).kind, PairFaultKind::kDuplicateSend);
  EXPECT_FALSE(bulk.end_window(plan, buffers, flight));
}

// Two ends, with the messages copied between their memories as late as can be.
class Couple {
 public:
  explicit Couple(bool staged, size_t frame_bytes)
      : ends_{End(schedule_of(3, 40), limits(frame_bytes), staged),
              End(schedule_of(3, 40), limits(frame_bytes), staged)} {}

  // Rows of bytes (rank, sequence) each way; whether both got what the other sent.
  bool gate(int entry, size_t bytes0, size_t bytes1) {
    ++sequence_;
    const std::array<size_t, 2> bytes = {bytes0, bytes1};
    for (size_t rank : {0, 1}) {
      End& end = ends_[rank];
      const auto out = end.out[sequence_ & 1].first(bytes[rank]);
      for (size_t i = 0; i < out.size(); ++i) out[i] = content(rank, i);
      end.start(sequence_, entry, bytes[rank], bytes[1 - rank]);
    }
    for (int round = 0; round < 1000 && !(ends_[0].machine.done() && ends_[1].machine.done()); ++round)
      for (size_t rank : {0, 1}) move(ends_[rank], ends_[1 - rank]);
    for (size_t rank : {0, 1}) {
      if (!ends_[rank].machine.done()) {
        ADD_FAILURE() << ends_[rank].machine.fault_text() << ends_[rank].machine.timeout_text();
        return false;
      }
      const auto in = ends_[rank].machine.arrival();
      if (in.size() != bytes[1 - rank]) return false;
      for (size_t i = 0; i < in.size(); ++i)
        if (in[i] != content(1 - rank, i)) return false;
    }
    return true;
  }
  void begin_step(RowClass now, RowClass next) {
    for (End& end : ends_) end.machine.begin_step(now, next);
  }
  const End& end() const { return ends_[0]; }

 private:
  static QueuePairLimits limits(size_t frame_bytes) {
    return {.max_message_bytes = 64,
            .send_depth = 64,
            .receive_depth = 256,
            .frame_bytes = frame_bytes,
            .loses_unposted = true,
            .carries_tags = true};
  }
  std::byte content(size_t rank, size_t i) const { return static_cast<std::byte>(rank * 101 + sequence_ * 7 + i); }

  static void move(End& from, End& to) {
    while (!from.port.barriers.empty() && to.machine.wants_barrier()) {
      const Barrier barrier = from.port.barriers.front();
      from.port.barriers.pop_front();
      to.machine.on_barrier(to.port, barrier);
    }
    while (!from.port.sends.empty()) {
      ASSERT_FALSE(to.port.receives.empty());
      const WorkRequest send = from.port.sends.front(), receive = to.port.receives.front();
      from.port.sends.pop_front();
      to.port.receives.pop_front();
      ASSERT_LE(send.bytes, receive.bytes);
      ASSERT_EQ(send.label, receive.label);
      std::memcpy(receive.data, send.data, send.bytes);
      from.machine.on_completion(from.port, {.kind = Completion::Kind::kSend, .id = send.id});
      to.machine.on_completion(
          to.port, {.kind = Completion::Kind::kReceive, .id = receive.id, .bytes = send.bytes, .tag = send.tag});
    }
  }

  std::array<End, 2> ends_;
  uint64_t sequence_ = 0;
};

TEST(PairMachine, MovesEveryByteDirectAndStagedPaddedAndNot) {
  for (const bool staged : {false, true}) {
    for (const size_t frame_bytes : {0, 16}) {
      SCOPED_TRACE(fmt::format("staged {} frames {}", staged, frame_bytes));
      Couple couple(staged, frame_bytes);
      const std::vector<RowClass> steps = {kOne, kOne, kBulk, kEight, kEight, kMany, kMany, kOne, kBulk, kBulk, kOne};
      for (size_t step = 0; step < steps.size(); ++step) {
        // Every third announcement is wrong.
        const RowClass next = step % 3 == 2 || step + 1 == steps.size() ? kOne : steps[step + 1];
        couple.begin_step(steps[step], next);
        const size_t rows = steps[step] == kBulk ? 60 : static_cast<size_t>(class_rows(steps[step]));
        for (int entry = 0; entry < 3; ++entry) {
          // The ranks' lengths differ; one is empty now and then.
          ASSERT_TRUE(couple.gate(entry, rows * 40 - 3, entry == 1 ? 0 : rows * 40)) << step << " " << entry;
        }
        if (steps[step] == kBulk) {
          ASSERT_TRUE(couple.gate(2, 17, rows * 40));  // an entry's second exchange
        }
      }
      EXPECT_GT(couple.end().machine.bulk_windows(), 9u);
    }
  }
}

}  // namespace
}  // namespace coprime
