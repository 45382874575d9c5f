// Slots that are not simulated one by one.
//
// A port that has its path for itself sends slot after slot, for as long as each finds its credit there: the next one
// is as the one before, later by the time that a slot takes (the period).
//
// A link that serves n ports, each in the midst of a message of whole slots, serves them one after another, always in
// the same order, and never rests: each comes back the moment its packet has ended, when the others are already there.
// So after n slots' time each port has sent one slot, and everything is as it was, later by this period. Ports take
// turns from a state that has come about this way (packets that ended one behind another) for as many periods as no
// message ends in and no credit is waited for. Meanwhile there is one event, of the first packet behind it. What comes
// between (a port begins to send; a receive where none was posted) interrupts: the periods that have passed are
// accounted for, then packets up to the present event served one by one, in the order of their events.
#include <algorithm>
#include <limits>

#include "sim/network.h"

namespace coprime::sim {

// Of the message at the head of a port, whose present slot ends then, and a slot each period from then on: whether each
// of them begins where the one before ends, since its credit is there. Credits: those there are; those of the slots to
// come, which are taken as they arrive.
bool Network::keeps_credits(const Message& message, Tick end, Tick period) const {
  const Channel& channel = channels_[message.channel];
  const Tick hop = hop_ticks(channel);
  if (channel.posts.empty() || channel.posts.front().posted.time > end + hop) return false;
  if (channel.credits.size() * period < 2 * hop) return false;
  for (size_t i = 0; i < channel.credits.size(); ++i) {
    if (channel.credits[i].time > end + i * period) return false;
  }
  return true;
}

// So many slots of them, with all that follows from them. The port is then where it is now in its present slot.
void Network::skip_slots(Port& port, Tick end, Tick period, int64_t count) {
  Message& message = port.queue.front();
  Channel& channel = channels_[message.channel];
  Incoming& incoming = channel.messages.front();
  port.free.op = incoming.row.op;
  const int64_t kept = std::min(count, static_cast<int64_t>(channel.credits.size()));
  Moment credit = port.free;
  credit.add(Part::kLink, end - port.free.time + static_cast<Tick>(count - kept) * period);
  credit.add(Part::kHop, 2 * hop_ticks(channel));
  for (int64_t i = 0; i < kept; ++i, credit.add(Part::kLink, period)) {
    channel.credits.pop();
    channel.credits.push(credit);
  }
  port.free.add(Part::kLink, static_cast<Tick>(count) * period);
  const int64_t bytes = count * context_.chip.ipcq.slot_bytes;
  message.left -= bytes;
  incoming.taken += bytes;
}

void Network::find_turns() {
  const Ipcq& ipcq = context_.chip.ipcq;
  const int64_t last = (ipcq.slot_bytes - 1) % ipcq.packet_bytes + 1;
  for (const Channel& channel : channels_) {
    const uint32_t place = place_of(channel.from, channel.level);
    const int way = direction(channel.level, place, place_of(channel.to, channel.level));
    LinkState& link = links_[static_cast<size_t>(channel.level)][link_number(channel.level, place, way)];
    Port& port = ports_[channel.port];
    if (link.port != -2 || link.passed || port.turns) continue;
    const auto known = std::ranges::find(turns_, &link, &Turns::link);
    Turns& turns = known != turns_.end() ? *known : turns_.emplace_back();
    const int64_t gb_s = link_of(channel.level).gb_s;
    turns.link = &link;
    turns.packet_ticks = transfer_ticks(std::min(ipcq.packet_bytes, ipcq.slot_bytes), gb_s);
    turns.last_packet_ticks = transfer_ticks(last, gb_s);
    turns.slot_ticks = slot_ticks(channel.level, ipcq.slot_bytes);
    turns.ports.push_back(channel.port);
    port.turns = &turns;
  }
}

// From here on, if the state allows it.
void Network::begin_turns(Turns& turns) {
  turns.order.clear();
  for (const uint32_t number : turns.ports) {
    if (ports_[number].sending) turns.order.push_back(number);
  }
  std::ranges::sort(turns.order, {}, [&](uint32_t number) { return std::pair(ports_[number].free.time, number); });
  turns.period = turns.order.size() * turns.slot_ticks;
  turns.periods = std::numeric_limits<int64_t>::max();
  const int64_t whole = context_.chip.ipcq.slot_bytes;
  Tick end = turns.link->free;
  for (size_t at = turns.order.size(); at-- > 0;) {
    const Port& port = ports_[turns.order[at]];
    if (port.free.time != end) return;
    end -= port.slot_left == whole ? turns.last_packet_ticks : turns.packet_ticks;
    turns.periods = std::min(turns.periods, port.queue.front().left / whole);
  }
  if (turns.periods == 0) return;
  for (size_t at = 0; at < turns.order.size(); ++at) {
    if (!keeps_credits(ports_[turns.order[at]].queue.front(), slot_end(turns, at), turns.period)) return;
  }
  turns.under_way = true;
  turns.first = ports_[turns.order[0]].free.time;
  turns.valid_from = context_.events.next_sequence();
  context_.events.push(turns.first + static_cast<Tick>(turns.periods) * turns.period, EventKind::kPort, turns.order[0]);
}

// When the present slot of a port ends: so many packets are served up to its last one.
Tick Network::slot_end(const Turns& turns, size_t at) const {
  const int64_t packet = context_.chip.ipcq.packet_bytes;
  const auto packets_left = [&](uint32_t number) { return (ports_[number].slot_left + packet - 1) / packet; };
  const int64_t own = packets_left(turns.order[at]);
  Tick end = turns.link->free;
  for (size_t i = 0; i < turns.order.size(); ++i) {
    const int64_t served = i <= at ? own : own - 1;
    end += static_cast<Tick>(served) * turns.packet_ticks;
    if (served >= packets_left(turns.order[i])) end -= turns.packet_ticks - turns.last_packet_ticks;
  }
  return end;
}

void Network::take_turns(Turns& turns, int64_t periods) {
  for (size_t at = 0; at < turns.order.size(); ++at)
    skip_slots(ports_[turns.order[at]], slot_end(turns, at), turns.period, periods);
  const auto count = static_cast<Tick>(periods);
  turns.link->free += count * turns.period;
  turns.link->busy += count * turns.period;
  const Ipcq& ipcq = context_.chip.ipcq;
  const int64_t packets = (ipcq.slot_bytes + ipcq.packet_bytes - 1) / ipcq.packet_bytes;
  const uint64_t served = count * turns.order.size() * static_cast<uint64_t>(packets);
  packet_totals_.served += served, packet_totals_.by_turns += served;
}

// To the present event, which changes something. Null: there are none.
void Network::interrupt_turns(Turns* turns) {
  if (!turns || !turns->under_way) return;
  const Tick now = context_.now;
  take_turns(*turns, now > turns->first ? static_cast<int64_t>((now - turns->first) / turns->period) : 0);
  for (size_t next = 0;; next = (next + 1) % turns->order.size()) {
    const uint32_t number = turns->order[next];
    if (!(event_of(ports_[number].free.time, EventKind::kPort, number, 0) < context_.event)) break;
    serve(number);
  }
  end_turns(*turns);
}

void Network::end_turns(Turns& turns) {
  turns.under_way = false;
  turns.valid_from = context_.events.next_sequence();
  for (const uint32_t number : turns.order) schedule(number);
}

}  // namespace coprime::sim
