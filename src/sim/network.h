// Messages between PEs: ports that send slots against credits, links that carry packets, channels (a sender and a
// receiver) that match messages with receives in order. The rules are those of docs/simulator-model.md.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "attention/mesh.h"
#include "sim/context.h"
#include "sim/ring.h"

namespace coprime::sim {

class Processor;

inline constexpr int kPortsOfPe = 10;  // N S E W to PEs, N S E W to CUBEs, up and down to SIPs

struct LevelTotals {
  uint64_t messages = 0, sent = 0, received = 0, byte_hops = 0;  // bytes
};

// Packets on links that several ports share.
struct PacketTotals {
  uint64_t served = 0, by_turns = 0;  // by_turns: of those, without events
};

class Network {
 public:
  Network(Context& context, attention::Mesh pes, attention::Mesh cubes, int sips);

  void attach(std::vector<std::unique_ptr<Processor>>& processors) { processors_ = &processors; }

  // -1: there is none.
  int neighbour(uint32_t pe, tl::Level level, attention::Direction direction) const;
  // The channel between two PEs, by number: made when first asked for. Error(kUsage): no such peer.
  uint32_t channel_to(uint32_t pe, tl::Peer peer) { return channel(pe, number_of(pe, peer), peer.level); }
  uint32_t channel_from(uint32_t pe, tl::Peer peer) { return channel(number_of(pe, peer), pe, peer.level); }
  int port_of(uint32_t channel) const { return static_cast<int>(channels_[channel].port % kPortsOfPe); }

  // Before the run: the PE will send there. When all launched PEs have said all of theirs (`complete`), paths that no
  // two ports share are known, and slots go along them without events; slots that are alike are skipped
  // (network_turns.cpp).
  void declare(uint32_t pe, tl::Peer peer) { channel_to(pe, peer); }
  void begin(bool complete);

  void send(uint32_t channel, const Moment& seen, const OpRow& row, std::unique_ptr<std::byte[]> payload);
  void post(uint32_t channel, const Moment& posted, const OpRow& row);
  uint32_t posted(uint32_t channel) const { return channels_[channel].posted; }
  // The end of receive number `index`, if it is known. Else the CPU waits for it from now on, until on_received().
  std::optional<Moment> wait(uint32_t channel, uint32_t index);
  // The data of message number `index` of the channel; each may be taken once.
  std::unique_ptr<std::byte[]> take_payload(uint32_t channel, uint32_t index);

  void on_received(uint32_t channel);
  void on_sent(uint32_t port);
  void on_hop(uint32_t packet);
  void on_port(uint32_t port);
  // A port's events of a lower number no longer count: what they stood for was served by turns.
  uint32_t valid_from(uint32_t port) const { return ports_[port].turns ? ports_[port].turns->valid_from : 0; }

  const std::array<LevelTotals, 3>& totals() const { return totals_; }
  const PacketTotals& packets() const { return packet_totals_; }
  Tick busiest_link() const;
  uint32_t sender_of(uint32_t pe, tl::Peer peer) const { return number_of(pe, peer); }
  // Of a sender whose message is stuck: the receiver whose credit it lacks; -1: none is stuck.
  int stuck_on(uint32_t pe) const;

 private:
  struct Message {
    Moment seen;
    uint32_t channel = 0, number = 0;
    int64_t left = 0;  // bytes that have not left
  };
  struct Slot {
    Moment arrival;
    int64_t bytes = 0;
    bool last = false;  // of its message
  };
  struct Post {
    Moment posted;
    OpRow row;
  };
  struct End {
    Moment moment;
    bool waited = false;
  };
  struct Incoming {
    int64_t taken = 0;
    OpRow row;
  };
  struct Channel {
    uint32_t from = 0, to = 0, port = 0;
    tl::Level level = tl::Level::kPe;
    int64_t hops = 0;
    bool starved = false;     // its port waits for a credit of it
    bool shared = false;      // some link of its path serves another port, too
    Ring<Moment> credits;     // when each may be used: known as soon as its slot is known to be taken
    Ring<Slot> slots;         // under way or arrived, not yet matched with a receive
    Ring<Incoming> messages;  // sent, not yet matched as a whole
    Ring<Post> posts;         // receives, likewise
    uint32_t sent = 0, posted = 0, received = 0;
    Ring<End> ends;                  // of receives, until they are waited for
    uint32_t ends_from = 0;          // the number of the first one
    uint32_t waited = ~uint32_t{0};  // the receive that the CPU waits for
    Ring<std::unique_ptr<std::byte[]>> payloads;
    uint32_t payloads_from = 0;  // the number of the first one's message
  };
  struct Turns;
  struct Port {
    Turns* turns = nullptr;  // of its link, if its ports may take turns
    Moment free;
    Ring<Message> queue;
    Ring<Moment> leaving;  // the ends of messages
    bool sending = false;  // with contention: a slot is under way
    int64_t slot_bytes = 0, slot_left = 0;
    Tick busy = 0;
  };
  struct Packet {
    Moment moment;
    uint32_t channel = 0, place = 0;  // the place whose link comes next
    int64_t bytes = 0, slot_bytes = 0;
    bool last_of_slot = false, last_of_message = false;
  };
  struct LinkState {
    Tick free = 0, busy = 0;
    int64_t port = -1;    // that declared a path over it; -2: several
    bool passed = false;  // some path goes on behind it, or came over another one
  };
  // Of a link that several ports share and no packet leaves for another one (network_turns.cpp).
  struct Turns {
    LinkState* link = nullptr;
    std::vector<uint32_t> ports;
    Tick packet_ticks = 0, last_packet_ticks = 0, slot_ticks = 0;  // of whole slots
    uint32_t valid_from = 0;

    bool under_way = false;
    std::vector<uint32_t> order;  // ports that take turns, the next one first
    Tick first = 0, period = 0;   // when the first packet came; in which each port sends a slot
    int64_t periods = 0;
  };

  uint32_t number_of(uint32_t pe, tl::Peer peer) const;
  uint32_t channel(uint32_t from, uint32_t to, tl::Level level);
  const Link& link_of(tl::Level level) const;
  Tick hop_ticks(const Channel& channel) const {
    return static_cast<Tick>(channel.hops * link_of(channel.level).hop_ps);
  }
  // The place of a PE at a level, and the link from one place toward another.
  uint32_t place_of(uint32_t pe, tl::Level level) const;
  int direction(tl::Level level, uint32_t from, uint32_t to) const;
  uint32_t step(tl::Level level, uint32_t from, int direction) const;
  size_t link_number(tl::Level level, uint32_t place, int direction) const;
  int64_t hops(tl::Level level, uint32_t from, uint32_t to) const;
  Tick slot_ticks(tl::Level level, int64_t bytes) const;

  void pump(uint32_t port);
  void schedule(uint32_t port);
  void serve(uint32_t port);
  Moment forward(Packet packet);
  void leave(uint32_t port);
  void arrive(uint32_t channel, const Slot& slot);
  void feed(Channel& channel);
  void take(uint32_t channel);
  bool shares_links(const Channel& channel) const;

  bool keeps_credits(const Message& message, Tick end, Tick period) const;
  void skip_slots(Port& port, Tick end, Tick period, int64_t count);
  void find_turns();
  void begin_turns(Turns& turns);
  Tick slot_end(const Turns& turns, size_t at) const;
  void take_turns(Turns& turns, int64_t periods);
  void interrupt_turns(Turns* turns);
  void end_turns(Turns& turns);

  Context& context_;
  const attention::Mesh pes_, cubes_;
  const int sips_;
  std::vector<std::unique_ptr<Processor>>* processors_ = nullptr;
  std::deque<Channel> channels_;
  std::vector<std::vector<uint32_t>> channels_of_;  // by sender
  std::vector<Port> ports_;
  std::array<std::vector<LinkState>, 3> links_;
  std::deque<Turns> turns_;
  bool skips_slots_ = false;
  std::vector<Packet> packets_;
  std::vector<uint32_t> free_packets_;
  std::array<LevelTotals, 3> totals_ = {};
  PacketTotals packet_totals_;
};

}  // namespace coprime::sim
