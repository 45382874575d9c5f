// Slots that are skipped against the same slots one by one: random traffic, over links that PEs share and others.
#include <gtest/gtest.h>

#include <random>
#include <tuple>

#include "sim/machine.h"

namespace coprime::sim {
namespace {

using M = tl::Tl<Processor>;
using tl::Task;

struct Step {
  enum class What { kSend, kPost, kWork } what;
  tl::Peer peer;
  int64_t count;  // elements
};
using Script = std::vector<Step>;

// Nothing here waits for another PE before the end, so no order of steps can stop.
Task follow(M& tl, const Script& script) {
  std::vector<tl::Pending> pending;
  uint32_t buffer = 0;
  for (const Step& step : script) {
    if (step.what == Step::What::kWork) {
      const auto scope = tl.scratch_scope();
      co_await tl.full(1, step.count, 0);
      continue;
    }
    const tl::HbmRef message = tl.ref({++buffer, tl::Type::kBf16}, 0, 1, step.count);
    if (step.what == Step::What::kSend) {
      co_await tl.send(step.peer, message);
    } else {
      pending.push_back(co_await tl.recv_async(step.peer, message));
    }
  }
  for (const tl::Pending& one : pending) co_await tl.wait(one);
  co_await tl.wait_all();
}

class Traffic {
 public:
  explicit Traffic(uint64_t seed) : random_(seed) {
    chip_ = ahbm_chip();
    chip_.sips = number(1, 2);
    chip_.cube_rows = 1, chip_.cube_columns = number(chip_.sips == 1 ? 2 : 1, 3);
    chip_.pes = 2 << number(0, 2);
    coarse_ = coin(), own_links_ = coin();
    chip_.pe.ps_per_cycle = coarse_ ? 1000 : 1;
    chip_.pe.issue.send = coin() ? 0 : number(1, 50), chip_.pe.issue.recv = number(0, coin() ? 50 : 2'000);
    chip_.pe.math = {.lanes = 1, .fill_cycles = 0, .exp_cost = 1, .queue_depth = 1, .blocking = true};
    chip_.ipcq.slot_bytes = number(8, 64), chip_.ipcq.slots = number(1, 6);
    chip_.ipcq.packet_bytes = coin() ? number(4, chip_.ipcq.slot_bytes) : chip_.ipcq.slot_bytes / number(1, 4);
    for (Link* link : {&chip_.ipcq.pe, &chip_.ipcq.cube, &chip_.ipcq.sip}) {
      link->gb_s = coarse_ ? 1 : number(1, 20);
      link->hop_ps = coin() ? 0 : number(1, coin() ? 1'000 : 8'000 * chip_.ipcq.slot_bytes / link->gb_s);
      if (coarse_) link->hop_ps -= link->hop_ps % 1000;
    }
    peers_.resize(static_cast<size_t>(chip_.sips * chip_.cube_columns * chip_.pes));
    scripts_.resize(peers_.size());
    const int64_t farthest = number(0, 3) == 0 ? 2 : 1;  // a path of two links now and then
    for (size_t at = 0; at < peers_.size(); ++at) add_messages(at, farthest);
    for (Script& script : scripts_) std::ranges::shuffle(script, random_);
    give_channels_their_sizes();
  }

  bool own_links() const { return own_links_; }
  // declared: where packets go is known before the run, so that slots may be skipped.
  MachineTotals run(bool declared, OpLog& log) const {
    Machine machine(chip_, 0, static_cast<int>(chip_.sips), &log, true);
    for (size_t at = 0; at < scripts_.size(); ++at) {
      const auto make = [&](M& tl) { return follow(tl, scripts_[at]); };
      machine.launch(place(at), "traffic", nullptr, make, declared ? std::optional(peers_[at]) : std::nullopt);
    }
    return machine.run();
  }

 private:
  tl::Place place(size_t at) const {
    const auto pe = static_cast<int>(at), pes = static_cast<int>(chip_.pes),
               cubes = static_cast<int>(chip_.cube_columns);
    return {pe / pes / cubes, pe / pes % cubes, pe % pes};
  }
  size_t index(tl::Place place) const {
    return static_cast<size_t>((place.sip * chip_.cube_columns + place.cube) * chip_.pes + place.pe);
  }

  // Every PE declares the same ways out of its CUBE, so these links are shared; few or many of them send at a time. To
  // its own CUBE's next PE each has a link for itself.
  void add_messages(size_t at, int64_t farthest) {
    const tl::Place from = place(at);
    if (const int pe = from.pe ^ 1; own_links_)
      add_messages(at, {tl::Level::kPe, pe}, {from.sip, from.cube, pe}, {tl::Level::kPe, from.pe});
    for (int cube = 0; cube < chip_.cube_columns; ++cube) {
      if (cube != from.cube && std::abs(cube - from.cube) <= farthest)
        add_messages(at, {tl::Level::kCube, cube}, {from.sip, cube, from.pe}, {tl::Level::kCube, from.cube});
    }
    for (int sip = 0; sip < chip_.sips; ++sip) {
      if (sip != from.sip)
        add_messages(at, {tl::Level::kSip, sip}, {sip, from.cube, from.pe}, {tl::Level::kSip, from.sip});
    }
    for (int64_t works = number(0, 6); works > 0; --works)
      scripts_[at].push_back({Step::What::kWork, {}, number(1, coin() ? 20 : coarse_ ? 500 : 50'000)});
  }
  void add_messages(size_t at, tl::Peer peer, tl::Place to, tl::Peer back) {
    peers_[at].push_back(peer);
    for (int64_t messages = number(0, 3); messages > 0; --messages) {
      scripts_[at].push_back({Step::What::kSend, peer, 0});
      scripts_[index(to)].push_back({Step::What::kPost, back, 0});
    }
  }
  // Messages and receives of a pair meet in order. Some are alike, so that they end at the same time.
  void give_channels_their_sizes() {
    for (size_t at = 0; at < scripts_.size(); ++at) {
      for (size_t i = 0; i < scripts_[at].size(); ++i) {
        Step& send = scripts_[at][i];
        if (send.what != Step::What::kSend) continue;
        send.count = coin() ? number(1, 1000) : 20 * chip_.ipcq.slot_bytes;
        const tl::Place from = place(at);
        tl::Place to = from;
        int& there = send.peer.level == tl::Level::kPe ? to.pe : send.peer.level == tl::Level::kCube ? to.cube : to.sip;
        const int own = std::exchange(there, send.peer.number);
        for (Step& post : scripts_[index(to)]) {
          if (post.what != Step::What::kPost || post.count != 0) continue;
          if (post.peer.level != send.peer.level || post.peer.number != own) continue;
          post.count = send.count;
          break;
        }
      }
    }
  }
  int64_t number(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  bool coin() { return random_() % 2 == 0; }

  std::mt19937_64 random_;
  Chip chip_;
  bool coarse_ = false;  // all times are whole nanoseconds: many are the same
  bool own_links_ = false;
  std::vector<std::vector<tl::Peer>> peers_;
  std::vector<Script> scripts_;
};

using Row = std::tuple<uint32_t, OpKind, Tick, Tick, uint64_t, uint32_t, uint32_t, Cause, uint16_t>;

std::vector<Row> rows_of(const OpLog& log) {
  std::vector<Row> rows;
  for (size_t i = 0; i < log.size(); ++i) {
    rows.emplace_back(log.op[i], log.kind[i], log.start[i], log.end[i], log.bytes[i], log.pe[i], log.cause_op[i],
                      log.cause[i], log.line[i]);
  }
  std::ranges::sort(rows);
  return rows;
}

void compare(uint64_t first, int count) {
  int taken = 0;
  PacketTotals packets;
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed) {
    const Traffic traffic(seed);
    OpLog turns_log, events_log;
    const MachineTotals turns = traffic.run(true, turns_log), events = traffic.run(false, events_log);
    ASSERT_EQ(events.packets.by_turns, 0u);
    ASSERT_TRUE(traffic.own_links() || turns.packets.served == events.packets.served) << seed;
    ASSERT_EQ(turns.end.time, events.end.time) << seed;
    ASSERT_EQ(turns.end.by, events.end.by) << seed;
    ASSERT_EQ(turns.time, events.time) << seed;
    ASSERT_EQ(turns.busiest_link, events.busiest_link) << seed;
    ASSERT_EQ(turns_log.size(), events_log.size()) << seed;
    // Where nobody shares the link there are no packets, and rows of messages come early.
    ASSERT_TRUE(traffic.own_links() || turns_log.op == events_log.op) << seed;
    const auto turns_rows = rows_of(turns_log), events_rows = rows_of(events_log);
    for (size_t i = 0; i < turns_rows.size(); ++i) ASSERT_EQ(turns_rows[i], events_rows[i]) << seed << " " << i;
    taken += turns.packets.by_turns > 0;
    packets.served += turns.packets.served, packets.by_turns += turns.packets.by_turns;
  }
  EXPECT_GT(taken * 2, count);
  EXPECT_GT(packets.by_turns * 3, packets.served);
}

TEST(Turns, every_tick_and_row_is_that_of_the_events_under_random_traffic) { compare(1, 1500); }

TEST(TurnsSoak, every_tick_and_row_is_that_of_the_events_under_10000_random_traffics) { compare(10'000, 10'000); }

}  // namespace
}  // namespace coprime::sim
