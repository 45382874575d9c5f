// For tests: a world of ranks whose pairwise machines meet a model of the network, as one value that can be copied and
// compared, so that every order of events can be tried.
//
// The network keeps the order of each direction and nothing else: a message is delivered, a completion polled, a
// barrier read, a gate begun at any time after it may. A message's content is what stands in the sender's slot when it
// is delivered, and a slot is written for its next gate as soon as that is allowed, so that a slot reused too early
// shows. Receives that are posted after a send in one call of the machine are in force only later: the peer may be
// faster.
//
// A message that meets no posted receive is a violation, until a message was taken away on purpose: then it is lost,
// alone (strict) or with all that follow (Apple).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gate/pair_machine.h"

namespace coprime::testing {

template <size_t kCount, class T>
std::array<T, kCount> repeat(const T& value) {
  return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return std::array<T, kCount>{((void)kIndex, value)...};
  }
  (std::make_index_sequence<kCount>{});
}

// A queue whose unused places are zero, so that equal queues are equal bytes.
template <class T, size_t kCapacity>
struct Fifo {
  std::array<T, kCapacity> items;
  uint64_t count;

  bool empty() const { return count == 0; }
  void push(const T& item) {
    if (count == kCapacity) throw std::length_error("a queue of the model is too short");
    items[count++] = item;
  }
  T pop() {
    const T front = items[0];
    for (uint64_t i = 1; i < count; ++i) items[i - 1] = items[i];
    items[--count] = T{};
    return front;
  }
};

struct ModelStep {
  RowClass now, next;    // next: as announced
  int64_t out_rows = 0;  // 0: the class's largest
};

struct ModelSettings {
  const WindowPlan* plan = nullptr;
  std::vector<ModelStep> steps;
  std::vector<size_t> bulk_bytes;      // that each rank sends in a bulk exchange
  bool early_send_completions = true;  // else when the message was delivered
  bool apple = false;                  // after a lost message its direction is dead
  bool may_lose = false;               // one message may be taken away, any
  bool poll_at_once = false;           // a delivery and the polling of its completion are one event
  uint32_t ignored_barrier = 0;        // mutation: this barrier does not wait for the peer
  bool late_receives = false;          // mutation: receives are in force only after the next event
};

template <int kRanks, size_t kQueue>
struct ModelWorld {
  static constexpr size_t kChunks = 4;  // of the longest contribution
  enum Region : uint8_t { kOut0 = 1, kOut1, kIn0, kIn1, kBulkIn, kDummy };
  static constexpr uint64_t kRegionShift = 20;

  struct Message {
    uint8_t region, chunk;
    uint16_t bytes;
    uint32_t tag;
  };
  struct Receive {
    uint64_t id;
    uint16_t region, chunk;
    uint32_t bytes;
  };
  struct Done {
    uint64_t id;
    uint32_t tag, bytes;
  };
  // What one rank has of its link to one peer: the queues toward it, and the machine.
  struct End {
    PairMachine machine;
    Fifo<Receive, kQueue> receives;     // posted by this rank, in force
    Fifo<Receive, kQueue> late;         // posted, not yet in force
    Fifo<uint64_t, kQueue> sends;       // ids of this rank's, until their messages arrive
    Fifo<uint64_t, kQueue> sends_done;  // not yet polled, like the next
    Fifo<Done, kQueue> receives_done;
    Fifo<Message, kQueue> flying;                         // to this rank
    Fifo<Barrier, 3> barriers;                            // to this rank
    std::array<std::array<uint16_t, kChunks>, 3> memory;  // in0, in1, bulk in: sequence << 4 | chunk
    uint64_t dead;                                        // the direction to this rank delivers nothing any more
  };
  struct Rank {
    std::array<End, kRanks - 1> ends;      // by peer, without the rank itself
    std::array<uint64_t, 2> out_sequence;  // what the out slots hold, by parity
    uint64_t sequence, step, gate, waiting;
  };
  std::array<Rank, kRanks> ranks;
  End& end(size_t rank, size_t peer) { return ranks[rank].ends[peer < rank ? peer : peer - 1]; }
  const End& end(size_t rank, size_t peer) const { return ranks[rank].ends[peer < rank ? peer : peer - 1]; }
  uint64_t lost;  // messages that were taken away

  static std::byte* address(Region region) {
    return reinterpret_cast<std::byte*>(static_cast<uint64_t>(region) << kRegionShift);
  }
};

template <class World, int kRanks>
class Model {
 public:
  using Region = typename World::Region;
  using End = typename World::End;

  explicit Model(ModelSettings settings) : settings_(std::move(settings)) {
    const auto span = [](Region region) { return std::span<std::byte>(World::address(region), size_t{1} << 16); };
    buffers_.window_in = {span(Region::kIn0), span(Region::kIn1)};
    buffers_.bulk.in = span(Region::kBulkIn);
    buffers_.dummy = span(Region::kDummy);
  }

  World start() const {
    // Worlds are compared byte by byte.
    static_assert(std::has_unique_object_representations_v<World>);
    const End end{.machine = PairMachine(settings_.plan, &buffers_)};
    const typename World::Rank rank{.ends = repeat<kRanks - 1>(end), .out_sequence = {0, 1}};
    World world{.ranks = repeat<kRanks>(rank)};
    return world;
  }

  struct Event {
    enum Kind : uint8_t { kBegin, kDeliver, kPollSend, kPollReceive, kBarrier, kPostLate, kLose } kind;
    uint8_t rank, peer;  // at which rank; on its link to which peer
  };

  std::vector<Event> events(const World& world) const {
    std::vector<Event> found;
    for (uint8_t rank = 0; rank < kRanks; ++rank) {
      const auto& at = world.ranks[rank];
      if (at.waiting == 0 && at.step < settings_.steps.size()) found.push_back({Event::kBegin, rank, rank});
      for (uint8_t peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        const End& end = world.end(rank, peer);
        if (!end.flying.empty()) found.push_back({Event::kDeliver, rank, peer});
        if (!end.flying.empty() && settings_.may_lose && world.lost == 0) found.push_back({Event::kLose, rank, peer});
        if (!end.sends_done.empty()) found.push_back({Event::kPollSend, rank, peer});
        if (!end.receives_done.empty()) found.push_back({Event::kPollReceive, rank, peer});
        if (!end.barriers.empty() && end.machine.wants_barrier()) found.push_back({Event::kBarrier, rank, peer});
        if (!end.late.empty()) found.push_back({Event::kPostLate, rank, peer});
      }
    }
    return found;
  }

  // Empty, or the invariant that the event broke.
  std::string apply(World& world, const Event& event) const {
    if (event.kind == Event::kBegin) return begin_gate(world, event.rank);
    End& end = world.end(event.rank, event.peer);
    switch (event.kind) {
      case Event::kLose:
        end.flying.pop();
        ++world.lost;
        complete_send(world.end(event.peer, event.rank));
        if (settings_.apple) end.dead = 1;
        return {};
      case Event::kPostLate:
        in_force(end);
        return {};
      case Event::kDeliver:
        if (std::string broken = deliver(world, event.rank, event.peer); !broken.empty()) return broken;
        if (!settings_.poll_at_once) return {};
        // The completion of the send first, at the other end.
        for (auto& [at, other] : {std::pair{event.peer, event.rank}, std::pair{event.rank, event.peer}}) {
          poll(world, at, other);
          if (std::string broken = after(world, at); !broken.empty()) return broken;
        }
        return {};
      case Event::kPollSend:
        poll_send(world, event.rank, event.peer);
        return after(world, event.rank);
      case Event::kPollReceive:
        poll_receive(world, event.rank, event.peer);
        return after(world, event.rank);
      case Event::kBarrier: {
        const Barrier barrier = end.barriers.pop();
        call(world, event.rank, event.peer,
             [&](PairMachine& machine, PairPort& port) { machine.on_barrier(port, barrier); });
        return after(world, event.rank);
      }
      case Event::kBegin:
        break;
    }
    return "no such event";
  }

  // A world in which nothing can happen any more: empty, or what is wrong with it.
  std::string check_end(const World& world) const {
    bool all_over = true;
    for (const auto& rank : world.ranks) {
      if (rank.step < settings_.steps.size()) all_over = false;
      for (const End& end : rank.ends) {
        if (world.lost == 0 && (!end.receives.empty() || !end.barriers.empty() || !end.flying.empty()))
          return "something is left over at the end";
      }
    }
    if (world.lost == 0 && !all_over) return "deadlock: " + where(world);
    if (world.lost != 0 && all_over) return "a message was lost and nobody noticed";
    return {};
  }

  bool any_fault(const World& world) const {
    for (const auto& rank : world.ranks)
      for (const End& end : rank.ends)
        if (end.machine.failed()) return true;
    return false;
  }

  std::string where(const World& world) const {
    std::string text;
    for (size_t rank = 0; rank < kRanks; ++rank) {
      const auto& at = world.ranks[rank];
      text += fmt::format("rank {} step {} gate {} {}", rank, at.step, at.gate, at.waiting != 0 ? "waits" : "computes");
      for (size_t peer = 0; peer < kRanks; ++peer) {
        if (peer == rank) continue;
        const PairMachine& machine = world.end(rank, peer).machine;
        text += fmt::format(" [peer {}: {}]", peer,
                            machine.failed() ? machine.fault_text()
                            : machine.done() ? "done"
                                             : machine.timeout_text());
      }
      text += "; ";
    }
    return text;
  }

 private:
  class Port final : public PairPort {
   public:
    Port(const Model& model, World& world, size_t rank, size_t peer)
        : model_(model), own_(world.end(rank, peer)), other_(world.end(peer, rank)) {}

    void post_recv(std::span<const WorkRequest> chain) override {
      for (const WorkRequest& request : chain) {
        const auto at = reinterpret_cast<uint64_t>(request.data);
        const auto offset = at & ((uint64_t{1} << World::kRegionShift) - 1);
        (sent_ || model_.settings_.late_receives ? own_.late : own_.receives)
            .push({request.id, static_cast<uint16_t>(at >> World::kRegionShift),
                   static_cast<uint16_t>(offset / model_.settings_.plan->chunk_bytes()),
                   static_cast<uint32_t>(request.bytes)});
      }
    }
    void post_send(std::span<const WorkRequest> chain) override {
      sent_ = true;
      for (const WorkRequest& request : chain) {
        const auto at = reinterpret_cast<uint64_t>(request.data);
        const auto offset = at & ((uint64_t{1} << World::kRegionShift) - 1);
        other_.flying.push({static_cast<uint8_t>(at >> World::kRegionShift),
                            static_cast<uint8_t>(offset / model_.settings_.plan->chunk_bytes()),
                            static_cast<uint16_t>(request.bytes), request.tag});
        own_.sends.push(request.id);
        if (model_.settings_.early_send_completions) complete_send(own_);
      }
    }
    void send_barrier(const Barrier& barrier) override {
      in_force(own_);
      if (barrier.kind == model_.settings_.ignored_barrier) {
        echoed_ = barrier;
        has_echo_ = true;
      } else {
        other_.barriers.push(barrier);
      }
    }

    bool take_echo(Barrier& barrier) {
      barrier = echoed_;
      return std::exchange(has_echo_, false);
    }

   private:
    const Model& model_;
    End &own_, &other_;
    bool sent_ = false, has_echo_ = false;
    Barrier echoed_;
  };
  static void in_force(End& end) {
    while (!end.late.empty()) end.receives.push(end.late.pop());
  }

  template <class Call>
  void call(World& world, size_t rank, size_t peer, Call&& body) const {
    End& end = world.end(rank, peer);
    in_force(end);
    Port port(*this, world, rank, peer);
    body(end.machine, port);
    for (Barrier echoed; port.take_echo(echoed);) end.machine.on_barrier(port, echoed);
  }

  void poll(World& world, size_t rank, size_t peer) const {
    End& end = world.end(rank, peer);
    while (!end.sends_done.empty()) poll_send(world, rank, peer);
    while (!end.receives_done.empty()) poll_receive(world, rank, peer);
  }
  void poll_send(World& world, size_t rank, size_t peer) const {
    const uint64_t id = world.end(rank, peer).sends_done.pop();
    call(world, rank, peer, [&](PairMachine& machine, PairPort& port) {
      machine.on_completion(port, {.kind = Completion::Kind::kSend, .id = id});
    });
  }
  void poll_receive(World& world, size_t rank, size_t peer) const {
    const auto done = world.end(rank, peer).receives_done.pop();
    const Completion completion{.kind = Completion::Kind::kReceive,
                                .id = done.id,
                                .bytes = done.bytes,
                                .tag = settings_.plan->limits().carries_tags ? done.tag : 0};
    call(world, rank, peer, [&](PairMachine& machine, PairPort& port) { machine.on_completion(port, completion); });
  }

  size_t flight_bytes(size_t rank, const ModelStep& step, int64_t entry) const {
    if (settings_.plan->service(step.now) == Service::kBulk) return settings_.bulk_bytes[rank];
    return settings_.plan->gate(entry, step.now).capacity;
  }

  std::string begin_gate(World& world, size_t rank) const {
    auto& at = world.ranks[rank];
    if (at.sequence > 0) {
      // The views of the last gate have been read until now.
      if (std::string broken = check_contents(world, rank); !broken.empty()) return broken;
    }
    const ModelStep& step = settings_.steps[at.step];
    ++at.sequence;
    at.waiting = 1;
    const auto entry = static_cast<int64_t>(at.gate);
    for (size_t peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      call(world, rank, peer, [&](PairMachine& machine, PairPort& port) {
        if (entry == 0) machine.begin_step(step.now, step.next);
        machine.start(port, {.sequence = at.sequence,
                             .entry = static_cast<int>(entry),
                             .tag = static_cast<uint32_t>(100 + entry),
                             .out = {World::address((at.sequence & 1) != 0 ? Region::kOut1 : Region::kOut0),
                                     flight_bytes(rank, step, entry)},
                             .incoming = flight_bytes(peer, step, entry)});
      });
    }
    return after(world, rank);
  }

  std::string deliver(World& world, size_t rank, size_t peer) const {
    End& end = world.end(rank, peer);
    const auto message = end.flying.pop();
    complete_send(world.end(peer, rank));
    if (end.dead != 0) return {};
    if (end.receives.empty()) {
      if (world.lost == 0) return "a message met no posted receive: " + where(world);
      if (settings_.apple) end.dead = 1;
      return {};
    }
    const auto receive = end.receives.pop();
    if (message.bytes > receive.bytes) {
      if (world.lost == 0) return "a message is longer than its receive: " + where(world);
    }
    uint16_t content = 0xffff;  // of a dummy
    if (message.region != Region::kDummy) {
      const uint64_t sequence = world.ranks[peer].out_sequence[message.region == Region::kOut1 ? 1 : 0];
      content = static_cast<uint16_t>(sequence << 4 | message.chunk);
    }
    end.memory[receive.region - Region::kIn0][receive.chunk] = content;
    end.receives_done.push({receive.id, message.tag, message.bytes});
    return {};
  }

  static void complete_send(End& end) {
    if (!end.sends.empty()) end.sends_done.push(end.sends.pop());
  }

  // A gate is done when all peers' are.
  std::string after(World& world, size_t rank) const {
    auto& at = world.ranks[rank];
    if (world.lost == 0 && any_fault(world)) return "a fault without a cause: " + where(world);
    if (at.waiting == 0) return {};
    for (size_t peer = 0; peer < kRanks; ++peer)
      if (peer != rank && !world.end(rank, peer).machine.done()) return {};
    at.waiting = 0;
    if (std::string broken = check_contents(world, rank); !broken.empty()) return broken;
    at.out_sequence[(at.sequence + 1) & 1] = at.sequence + 1;
    if (++at.gate == static_cast<uint64_t>(settings_.plan->entries())) {
      at.gate = 0;
      ++at.step;
    }
    return {};
  }

  std::string check_contents(const World& world, size_t rank) const {
    const auto& at = world.ranks[rank];
    for (size_t peer = 0; peer < kRanks; ++peer) {
      if (peer == rank) continue;
      const End& end = world.end(rank, peer);
      if (!end.machine.done()) continue;
      const std::span<const std::byte> view = end.machine.arrival();
      const auto region = reinterpret_cast<uint64_t>(view.data()) >> World::kRegionShift;
      const int64_t chunks = chunk_count(view.size(), settings_.plan->chunk_bytes());
      for (int64_t chunk = 0; chunk < (view.empty() ? 0 : chunks); ++chunk) {
        const uint16_t content = end.memory[region - Region::kIn0][static_cast<size_t>(chunk)];
        if (content != static_cast<uint16_t>(at.sequence << 4 | static_cast<uint64_t>(chunk))) {
          return fmt::format("rank {} took seq {} chunk {} of rank {} for seq {} chunk {}: {}", rank, content >> 4,
                             content & 15, peer, at.sequence, chunk, where(world));
        }
      }
    }
    return {};
  }

  ModelSettings settings_;
  PairBuffers buffers_;
};

}  // namespace coprime::testing
