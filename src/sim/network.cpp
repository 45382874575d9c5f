#include "sim/network.h"

#include <algorithm>

#include "base/error.h"
#include "sim/processor.h"

namespace coprime::sim {

using attention::Direction;
using tl::Level;

Network::Network(Context& context, attention::Mesh pes, attention::Mesh cubes, int sips)
    : context_(context), pes_(pes), cubes_(cubes), sips_(sips) {
  const auto places = static_cast<size_t>(sips * cubes.size() * pes.size());
  channels_of_.resize(places);
  ports_.resize(places * kPortsOfPe);
  links_[0].resize(places * 4);
  links_[1].resize(static_cast<size_t>(sips * cubes.size()) * 4);
  links_[2].resize(static_cast<size_t>(sips) * 2);
}

// ---- Places: of PEs, of CUBEs, of SIPs, each numbered through the chip.

const Link& Network::link_of(Level level) const {
  const Ipcq& ipcq = context_.chip.ipcq;
  return level == Level::kPe ? ipcq.pe : level == Level::kCube ? ipcq.cube : ipcq.sip;
}

uint32_t Network::place_of(uint32_t pe, Level level) const {
  const auto pes = static_cast<uint32_t>(pes_.size()), cubes = static_cast<uint32_t>(cubes_.size());
  return level == Level::kPe ? pe : level == Level::kCube ? pe / pes : pe / pes / cubes;
}

// 0 to 3: N S E W; of SIPs 0: up, 1: down, around the ring the shorter way.
int Network::direction(Level level, uint32_t from, uint32_t to) const {
  if (level == Level::kSip) {
    const int up = (static_cast<int>(to) - static_cast<int>(from) + sips_) % sips_;
    return up * 2 <= sips_ ? 0 : 1;
  }
  const attention::Mesh& mesh = level == Level::kPe ? pes_ : cubes_;
  return static_cast<int>(mesh.toward(static_cast<int>(from) % mesh.size(), static_cast<int>(to) % mesh.size()));
}

uint32_t Network::step(Level level, uint32_t from, int direction) const {
  if (level == Level::kSip)
    return (from + static_cast<uint32_t>(direction == 0 ? 1 : sips_ - 1)) % static_cast<uint32_t>(sips_);
  const attention::Mesh& mesh = level == Level::kPe ? pes_ : cubes_;
  const auto size = static_cast<uint32_t>(mesh.size());
  return from / size * size +
         static_cast<uint32_t>(mesh.neighbour(static_cast<int>(from % size), static_cast<Direction>(direction)));
}

size_t Network::link_number(Level level, uint32_t place, int direction) const {
  return size_t{place} * (level == Level::kSip ? 2 : 4) + static_cast<size_t>(direction);
}

int64_t Network::hops(Level level, uint32_t from, uint32_t to) const {
  if (level == Level::kSip) {
    const int up = (static_cast<int>(to) - static_cast<int>(from) + sips_) % sips_;
    return std::min(up, sips_ - up);
  }
  const attention::Mesh& mesh = level == Level::kPe ? pes_ : cubes_;
  return mesh.hops(static_cast<int>(from) % mesh.size(), static_cast<int>(to) % mesh.size());
}

int Network::neighbour(uint32_t pe, Level level, Direction direction) const {
  const attention::Mesh& mesh = level == Level::kPe ? pes_ : cubes_;
  if (level == Level::kSip) return -1;
  return mesh.neighbour(static_cast<int>(place_of(pe, level)) % mesh.size(), direction);
}

uint32_t Network::number_of(uint32_t pe, tl::Peer peer) const {
  const auto pes = static_cast<uint32_t>(pes_.size()), cubes = static_cast<uint32_t>(cubes_.size());
  const auto number = static_cast<uint32_t>(peer.number);
  const uint32_t count = peer.level == Level::kPe     ? pes
                         : peer.level == Level::kCube ? cubes
                                                      : static_cast<uint32_t>(sips_);
  const uint32_t own = place_of(pe, peer.level) % count;
  if (peer.number < 0 || number >= count || number == own) {
    fail(ErrorKind::kUsage, "a message between number {} and number {} of {}: there is no such pair", own, peer.number,
         count);
  }
  if (peer.level == Level::kPe) return pe / pes * pes + number;
  if (peer.level == Level::kCube) return (pe / pes / cubes * cubes + number) * pes + pe % pes;
  return (number * cubes + pe / pes % cubes) * pes + pe % pes;
}

uint32_t Network::channel(uint32_t from, uint32_t to, Level level) {
  for (const uint32_t number : channels_of_[from]) {
    if (channels_[number].to == to) return number;
  }
  const auto number = static_cast<uint32_t>(channels_.size());
  Channel channel;
  channel.from = from, channel.to = to, channel.level = level;
  const uint32_t begin = place_of(from, level), end = place_of(to, level);
  channel.hops = hops(level, begin, end);
  channel.port =
      from * kPortsOfPe + static_cast<uint32_t>(level) * 4 + static_cast<uint32_t>(direction(level, begin, end));
  channel.shared = context_.chip.contention;
  for (int64_t i = 0; i < context_.chip.ipcq.slots; ++i) channel.credits.push({});
  channels_.push_back(std::move(channel));  // a deque: references stay
  channels_of_[from].push_back(number);
  return number;
}

Tick Network::slot_ticks(Level level, int64_t bytes) const {
  const int64_t packet = context_.chip.ipcq.packet_bytes, gb_s = link_of(level).gb_s;
  const int64_t rest = bytes % packet;
  return static_cast<Tick>(bytes / packet) * transfer_ticks(packet, gb_s) + (rest ? transfer_ticks(rest, gb_s) : 0);
}

// ---- Sending

void Network::begin(bool complete) {
  if (!complete) return;
  skips_slots_ = true;
  for (const Channel& channel : channels_) {
    const uint32_t end = place_of(channel.to, channel.level);
    for (uint32_t place = place_of(channel.from, channel.level); place != end;) {
      const int way = direction(channel.level, place, end);
      LinkState& link = links_[static_cast<size_t>(channel.level)][link_number(channel.level, place, way)];
      link.port = link.port == -1 || link.port == channel.port ? int64_t{channel.port} : -2;
      link.passed = link.passed || channel.hops > 1;
      place = step(channel.level, place, way);
    }
  }
  for (Channel& channel : channels_) channel.shared = channel.shared && shares_links(channel);
  if (context_.chip.contention) find_turns();
}

bool Network::shares_links(const Channel& channel) const {
  const uint32_t end = place_of(channel.to, channel.level);
  for (uint32_t place = place_of(channel.from, channel.level); place != end;) {
    const int way = direction(channel.level, place, end);
    if (links_[static_cast<size_t>(channel.level)][link_number(channel.level, place, way)].port == -2) return true;
    place = step(channel.level, place, way);
  }
  return false;
}

void Network::send(uint32_t number, const Moment& seen, const OpRow& row, std::unique_ptr<std::byte[]> payload) {
  Channel& channel = channels_[number];
  LevelTotals& totals = totals_[static_cast<size_t>(channel.level)];
  ++totals.messages;
  totals.sent += row.bytes;
  totals.byte_hops += row.bytes * static_cast<uint64_t>(channel.hops);
  channel.messages.push({0, row});
  if (context_.with_data) channel.payloads.push(std::move(payload));
  if (ports_[channel.port].queue.empty()) interrupt_turns(ports_[channel.port].turns);
  ports_[channel.port].queue.push({seen, number, channel.sent++, static_cast<int64_t>(row.bytes)});
  pump(channel.port);
}

// Slots leave while credits are known, those that may be used later, too: nobody else uses this port.
void Network::pump(uint32_t number) {
  Port& port = ports_[number];
  while (!port.sending && !port.queue.empty()) {
    Message& message = port.queue.front();
    Channel& channel = channels_[message.channel];
    if (channel.credits.empty()) {
      channel.starved = true;
      return;
    }
    const Moment credit = channel.credits.front();
    channel.credits.pop();
    Incoming& incoming = channel.messages[message.number - channel.received];
    const bool first = message.left == static_cast<int64_t>(incoming.row.bytes);
    if (first) {
      incoming.row.cause = message.seen.time > port.free.time ? Cause::kIssue : Cause::kEngine;
      incoming.row.cause_op = later(port.free, message.seen).op;
    }
    port.free.wait(message.seen);
    if (credit.time > port.free.time) {
      port.free = credit;
      if (first) incoming.row.cause = Cause::kBuffer, incoming.row.cause_op = credit.op;
    }
    if (first) incoming.row.start = port.free.time;
    const int64_t bytes = std::min(context_.chip.ipcq.slot_bytes, message.left);
    message.left -= bytes;
    if (channel.shared) {
      port.sending = true;
      port.slot_bytes = port.slot_left = bytes;
      return schedule(number);
    }
    const Tick ticks = slot_ticks(channel.level, bytes);
    const int64_t alike = skips_slots_ ? message.left / context_.chip.ipcq.slot_bytes : 0;
    if (alike > 0 && keeps_credits(message, port.free.time + ticks, ticks)) {
      skip_slots(port, port.free.time + ticks, ticks, alike);
      port.busy += static_cast<Tick>(alike) * ticks;
    }
    port.busy += ticks;
    port.free.add(Part::kLink, ticks);
    port.free.op = incoming.row.op;
    Slot slot{port.free, bytes, message.left == 0};
    slot.arrival.add(Part::kHop, hop_ticks(channel));
    const uint32_t to = message.channel;
    if (slot.last) leave(number);
    channels_[to].slots.push(slot);
    take(to);
  }
}

void Network::schedule(uint32_t number) {
  const Port& port = ports_[number];
  if (port.turns && port.turns->under_way) return;
  context_.events.push(port.free.time, EventKind::kPort, number);
}

// On a shared path: the port has a packet for its first link.
void Network::on_port(uint32_t number) {
  Port& port = ports_[number];
  if (port.turns && port.turns->under_way) {
    take_turns(*port.turns, port.turns->periods);
    return end_turns(*port.turns);
  }
  serve(number);
  if (port.turns && port.sending && port.slot_left == port.slot_bytes) begin_turns(*port.turns);
}

void Network::serve(uint32_t number) {
  Port& port = ports_[number];
  const Message& message = port.queue.front();
  const Channel& channel = channels_[message.channel];
  const int64_t bytes = std::min(context_.chip.ipcq.packet_bytes, port.slot_left);
  port.slot_left -= bytes;
  Packet packet{port.free,           message.channel,  place_of(channel.from, channel.level), bytes, port.slot_bytes,
                port.slot_left == 0, message.left == 0};
  packet.moment.op = channel.messages[message.number - channel.received].row.op;
  port.free = forward(packet);
  if (port.slot_left > 0) return schedule(number);
  port.sending = false;
  if (message.left == 0) leave(number);
  pump(number);
}

// The packet's service by the link at its place. Returns the end of that.
Moment Network::forward(Packet packet) {
  Channel& channel = channels_[packet.channel];
  const uint32_t end_place = place_of(channel.to, channel.level);
  const int way = direction(channel.level, packet.place, end_place);
  LinkState& link = links_[static_cast<size_t>(channel.level)][link_number(channel.level, packet.place, way)];
  const Tick hop = static_cast<Tick>(link_of(channel.level).hop_ps);
  const Tick ticks = transfer_ticks(packet.bytes, link_of(channel.level).gb_s);
  if (link.free > packet.moment.time) packet.moment.add(Part::kLink, link.free - packet.moment.time);
  link.free = packet.moment.time + ticks;
  link.busy += ticks;
  ++packet_totals_.served;
  Moment end = packet.moment;
  end.add(Part::kLink, ticks);

  packet.place = step(channel.level, packet.place, way);
  if (packet.place != end_place) {
    packet.moment.add(Part::kHop, hop);
    if (free_packets_.empty()) free_packets_.push_back(static_cast<uint32_t>(packets_.size())), packets_.emplace_back();
    const uint32_t number = free_packets_.back();
    free_packets_.pop_back();
    packets_[number] = packet;
    context_.events.push(packet.moment.time, EventKind::kHop, number);
  } else if (packet.last_of_slot) {
    Slot slot{end, packet.slot_bytes, packet.last_of_message};
    slot.arrival.add(Part::kHop, hop);
    arrive(packet.channel, slot);
  }
  return end;
}

void Network::on_hop(uint32_t number) {
  const Packet packet = packets_[number];
  free_packets_.push_back(number);
  forward(packet);
}

// The message at the head of the port has been sent.
void Network::leave(uint32_t number) {
  Port& port = ports_[number];
  port.queue.pop();
  port.leaving.push(port.free);
  if (port.leaving.size() == 1) context_.events.push(port.free.time, EventKind::kSent, number);
}

void Network::on_sent(uint32_t number) {
  Port& port = ports_[number];
  const Moment moment = port.leaving.front();
  port.leaving.pop();
  if (!port.leaving.empty()) context_.events.push(port.leaving.front().time, EventKind::kSent, number);
  (*processors_)[number / kPortsOfPe]->on_sent(static_cast<int>(number % kPortsOfPe), moment);
}

// ---- Receiving

void Network::post(uint32_t number, const Moment& posted, const OpRow& row) {
  Channel& channel = channels_[number];
  if (channel.posts.empty()) interrupt_turns(ports_[channel.port].turns);
  channel.posts.push({posted, row});
  ++channel.posted;
  take(number);
  feed(channel);
}

void Network::arrive(uint32_t number, const Slot& slot) {
  channels_[number].slots.push(slot);
  take(number);
  feed(channels_[number]);
}

// A port that waits for a credit goes on if there is one.
void Network::feed(Channel& channel) {
  if (!channel.starved || channel.credits.empty()) return;
  channel.starved = false;
  pump(channel.port);
}

// Slots meet the receives that are posted: when each is taken, and when its credit is back, is known at once.
void Network::take(uint32_t number) {
  Channel& channel = channels_[number];
  while (!channel.slots.empty() && !channel.posts.empty()) {
    const Slot slot = channel.slots.front();
    channel.slots.pop();
    Post& post = channel.posts.front();
    Incoming& incoming = channel.messages.front();
    if (incoming.row.bytes != post.row.bytes) {
      fail(ErrorKind::kUsage, "a receive of {} bytes (line {}) meets a message of {} bytes (line {})", post.row.bytes,
           post.row.line, incoming.row.bytes, incoming.row.line);
    }
    Moment taken = later(slot.arrival, post.posted);
    Moment credit = taken;
    credit.add(Part::kHop, hop_ticks(channel));
    channel.credits.push(credit);
    incoming.taken += slot.bytes;
    if (!slot.last) continue;

    totals_[static_cast<size_t>(channel.level)].received += static_cast<uint64_t>(incoming.taken);
    incoming.row.end = slot.arrival.time;
    context_.append(incoming.row);
    post.row.start = post.posted.time, post.row.end = taken.time;
    const bool data = slot.arrival.time > post.posted.time;
    post.row.cause = data ? Cause::kData : Cause::kIssue, post.row.cause_op = data ? incoming.row.op : post.posted.op;
    context_.append(post.row);
    taken.op = post.row.op;
    channel.ends.push({taken, false});
    channel.messages.pop();
    channel.posts.pop();
    if (channel.waited == channel.received++) context_.events.push(taken.time, EventKind::kReceived, number);
  }
}

std::optional<Moment> Network::wait(uint32_t number, uint32_t index) {
  Channel& channel = channels_[number];
  if (index >= channel.received) {
    channel.waited = index;
    return std::nullopt;
  }
  End& end = channel.ends[index - channel.ends_from];
  const Moment moment = end.moment;
  end.waited = true;
  while (!channel.ends.empty() && channel.ends.front().waited) channel.ends.pop(), ++channel.ends_from;
  return moment;
}

void Network::on_received(uint32_t number) {
  Channel& channel = channels_[number];
  const auto end = wait(number, std::exchange(channel.waited, ~uint32_t{0}));
  (*processors_)[channel.to]->on_received(*end);
}

std::unique_ptr<std::byte[]> Network::take_payload(uint32_t number, uint32_t index) {
  Channel& channel = channels_[number];
  auto payload = std::move(channel.payloads[index - channel.payloads_from]);
  while (!channel.payloads.empty() && !channel.payloads.front() && channel.payloads_from < channel.received) {
    channel.payloads.pop();
    ++channel.payloads_from;
  }
  return payload;
}

Tick Network::busiest_link() const {
  Tick busy = 0;
  for (const auto& level : links_) {
    for (const LinkState& link : level) busy = std::max(busy, link.busy);
  }
  for (const Port& port : ports_) busy = std::max(busy, port.busy);
  return busy;
}

int Network::stuck_on(uint32_t pe) const {
  for (const uint32_t number : channels_of_[pe]) {
    if (channels_[number].starved) return static_cast<int>(channels_[number].to);
  }
  return -1;
}

}  // namespace coprime::sim
