// From reports to figures, costs and advice, with worlds that are made up; and a world of processes.
#include "tools/link.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tools/link_member.h"

namespace coprime {
namespace {

constexpr int64_t kKiB = 1024;

// Every transfer of B bytes takes what the members' costs say, in nanoseconds.
class MadeUpWorld final : public LinkWorld {
 public:
  explicit MadeUpWorld(int ranks) : ranks_(ranks) {}
  int ranks() const override { return ranks_; }
  int timeout_ms() const override { return 750; }
  std::vector<LinkHost> hosts() const override {
    std::vector<LinkHost> all;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (all.empty() || !clock) all.push_back({fmt::format("host {}", rank), {}, 64});
      all.back().ranks.push_back(rank);
    }
    return all;
  }
  std::vector<std::string> notes() const override { return {"ranks 0 and 1: over a made-up device"}; }
  std::string loss(int rank) override { return rank == lost ? "it hung up" : ""; }
  std::vector<TrialReport> run(const LinkTrial& trial) override {
    const std::vector<int>& members = trial.members;
    std::vector<TrialReport> reports(members.size());
    for (size_t m = 0; m < members.size(); ++m) {
      TrialReport& report = reports[m];
      report.link = "made up";
      report.transfers = 1;
      report.wrong = members[m] == liar ? 1 : 0;
      if (members[m] == stuck || members[m] == left || members[m] == dies) {
        report.failure = "it went wrong";
        report.timed_out = members[m] == stuck;
        if (members[m] == dies) lost = dies;
      }
      const int64_t bytes = trial.bytes, factor = members[0] == slow_first && members[1] == slow_second ? 10 : 1;
      const auto add = [&](std::vector<int64_t>& times, int64_t time) { times.assign(trial.repeat, time * factor); };
      // The ranks' clocks are 5000 apart where they are not one.
      const int64_t skew = clock || m == 0 ? 0 : 5000;
      report.times.first_begin.assign(trial.repeat, 100 + skew);
      report.times.first_end.assign(trial.repeat, 100 + skew + bytes);
      report.times.second_begin.assign(trial.repeat, 200 + skew);
      report.times.second_end.assign(trial.repeat, 200 + skew + 2 * bytes);
      add(report.times.round_trip, 3 * bytes);
      add(report.times.stream_first, 4 * bytes);
      add(report.times.stream_second, 4 * bytes);
      add(report.times.stream_both, 4 * bytes);
      add(report.times.gate, bytes + static_cast<int64_t>(m));
      add(report.times.owners, bytes / 2 + 8 * kKiB);
      add(report.times.bare, bytes / 2);
    }
    return reports;
  }

  bool clock = true;
  int liar = -1, stuck = -1, left = -1, dies = -1, lost = -1, slow_first = -1, slow_second = -1;

 private:
  int ranks_;
};

bool any_line(const std::vector<std::string>& lines, const std::string& words) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(words) != std::string::npos; });
}

TEST(Figures, are_nearest_ranks_in_microseconds) {
  std::vector<int64_t> times;
  for (int64_t i = 200; i > 0; --i) times.push_back(i * 1000);
  const Figures figures = figures_of(times);
  EXPECT_EQ(figures.p50, 100);
  EXPECT_EQ(figures.p99, 198);
  EXPECT_EQ(figures.max, 200);
  EXPECT_EQ(figures_of({7000}).p99, 7);
  EXPECT_EQ(figures_of({}).max, 0);
}

TEST(Link, measures_every_pair_both_ways_and_the_gate_of_all) {
  MadeUpWorld world(4);
  const LinkFigures figures = measure_links(world, {.sizes = {4 * kKiB, 16 * kKiB}, .repeat = 10});
  ASSERT_EQ(figures.pairs.size(), 6u * 2 * 2);
  for (const PairFigures& pair : figures.pairs) {
    const auto us = static_cast<double>(pair.bytes) / 1000;
    EXPECT_DOUBLE_EQ(pair.one_way.p50, pair.from < pair.to ? us : 2 * us);
    EXPECT_DOUBLE_EQ(pair.round_trip.p50, 3 * us);
    EXPECT_DOUBLE_EQ(pair.push_gb_s, 1);  // four vectors in four times their bytes
    EXPECT_DOUBLE_EQ(pair.duplex_efficiency, 1);
  }
  ASSERT_EQ(figures.gate.size(), 2u);
  EXPECT_EQ(figures.gate[1].ranks, 4);
  EXPECT_DOUBLE_EQ(figures.gate[1].gate.p50, (16 * kKiB + 3) / 1000.0);  // the slowest rank's
  EXPECT_DOUBLE_EQ(*figures.gate[1].floor_p50_us, 8 * kKiB / 1000.0);
  EXPECT_TRUE(figures.good());
}

TEST(Link, halves_the_round_trip_where_clocks_differ_and_says_so) {
  MadeUpWorld world(2);
  world.clock = false;
  const LinkFigures figures = measure_links(world, {.sizes = {16 * kKiB}, .repeat = 10});
  EXPECT_DOUBLE_EQ(figures.pairs[0].one_way.p50, 1.5 * 16 * kKiB / 1000.0);
  EXPECT_NE(link_text(figures, {}).find("half of there and back"), std::string::npos);
  EXPECT_NE(link_json(figures, {}).find("half of the round trip"), std::string::npos);
}

TEST(Link, counts_time_outs_bail_outs_and_wrong_contents_apart) {
  MadeUpWorld world(3);
  world.stuck = 1;
  world.left = 2;
  world.liar = 0;
  const LinkFigures figures = measure_links(world, {.sizes = {16 * kKiB}, .repeat = 10});
  EXPECT_FALSE(figures.good());
  EXPECT_EQ(figures.timeouts, 3);   // pairs 0-1 and 1-2, and the gate
  EXPECT_EQ(figures.bail_outs, 3);  // pairs 0-2 and 1-2, and the gate
  EXPECT_EQ(figures.wrong, 3);
  EXPECT_TRUE(figures.pairs.empty());
  EXPECT_TRUE(figures.gate.empty());
  EXPECT_NE(link_text(figures, {}).find("failed"), std::string::npos);
  EXPECT_TRUE(any_line(link_advice(figures), "came out wrong"));
}

TEST(Link, leaves_out_what_a_lost_rank_would_have_taken_part_in_and_says_so_once) {
  MadeUpWorld world(3);
  world.dies = 1;
  const LinkFigures figures = measure_links(world, {.sizes = {4 * kKiB, 16 * kKiB}, .repeat = 10});
  EXPECT_FALSE(figures.good());
  EXPECT_EQ(figures.bail_outs, 1);
  ASSERT_EQ(figures.failures.size(), 2u);
  EXPECT_EQ(figures.failures[0], "ranks 0 and 1, 4096 bytes: it went wrong");
  EXPECT_EQ(figures.failures[1], "all that rank 1 was still to take part in was left out: it hung up");
  EXPECT_EQ(figures.pairs.size(), 4u);  // ranks 0 and 2
  EXPECT_TRUE(figures.gate.empty());
}

TEST(TokenCost, adds_the_medians_of_the_schedules_gates) {
  MadeUpWorld world(2);
  const LinkFigures figures = measure_links(world, {.sizes = {1000, 20'000}, .repeat = 10});
  GateSchedule schedule{{GateKind::kEmbedding, -1, 1000, 1}};
  for (int layer = 0; layer < 4; ++layer) schedule.push_back({GateKind::kFfn, layer, 20'000, 1});
  const TokenCost cost = token_cost(figures, schedule);
  EXPECT_EQ(cost.gates, 5);
  EXPECT_NEAR(cost.gate_ms, (1001 + 4 * 20'001) / 1e6, 1e-12);
  EXPECT_NEAR(cost.tokens_per_second(), 1e9 / 81005, 1e-6);
  schedule.push_back({GateKind::kFfn, 4, 30'000, 1});
  EXPECT_THROW(token_cost(figures, schedule), Error);
}

TEST(Advice, names_the_faster_exchange_by_size) {
  MadeUpWorld world(3);  // owners win above 16 KiB
  const LinkFigures figures =
      measure_links(world, {.sizes = {4 * kKiB, 8 * kKiB, 64 * kKiB, 1024 * kKiB}, .repeat = 10});
  const auto lines = link_advice(figures);
  EXPECT_TRUE(any_line(lines, "4 KiB to 8 KiB: push to all")) << link_text(figures, {});
  EXPECT_TRUE(any_line(lines, "64 KiB to 1 MiB: sums by owners")) << link_text(figures, {});
  MadeUpWorld two(2);
  EXPECT_TRUE(any_line(link_advice(measure_links(two, {.sizes = {64 * kKiB}, .repeat = 10})), "two ranks: push"));
}

TEST(Advice, names_the_slow_pair) {
  MadeUpWorld world(4);
  world.slow_first = 1;
  world.slow_second = 3;
  const auto lines = link_advice(measure_links(world, {.sizes = {16 * kKiB}, .repeat = 10}));
  EXPECT_TRUE(any_line(lines, "ranks 1 and 3 take"));
  EXPECT_FALSE(any_line(lines, "ranks 0 and 1 take"));
}

TEST(Advice, counts_the_cores_of_each_host) {
  class SmallHosts final : public LinkWorld {
   public:
    int ranks() const override { return 3; }
    int timeout_ms() const override { return 750; }
    std::vector<LinkHost> hosts() const override { return {{"this host", {0}, 1}, {"10.0.0.2", {1, 2}, 1}}; }
    std::vector<std::string> notes() const override { return {}; }
    std::string loss(int) override { return {}; }
    std::vector<TrialReport> run(const LinkTrial& trial) override { return MadeUpWorld(3).run(trial); }
  };
  SmallHosts world;
  const LinkFigures figures = measure_links(world, {.sizes = {16 * kKiB}, .repeat = 10});
  EXPECT_TRUE(any_line(link_advice(figures), "2 ranks share 1 core of 10.0.0.2"));
  EXPECT_FALSE(any_line(link_advice(figures), "this host"));
  EXPECT_NE(link_text(figures, {}).find("rank 0 on this host, 1 core; ranks 1, 2 on 10.0.0.2, 1 core"),
            std::string::npos)
      << link_text(figures, {});
  EXPECT_NE(link_text(figures, {}).find("on one host by one clock, between hosts half"), std::string::npos);
}

TEST(Report, says_why_there_is_no_floor) {
  MadeUpWorld world(2);
  LinkFigures figures = measure_links(world, {.sizes = {16 * kKiB}, .repeat = 10});
  EXPECT_EQ(link_text(figures, {}).find("no floor"), std::string::npos);
  figures.gate[0].floor_p50_us.reset();
  EXPECT_NE(link_text(figures, {}).find("no floor: links over RDMA"), std::string::npos);
}

TEST(Report, has_the_notes_on_the_links) {
  MadeUpWorld world(2);
  const LinkFigures figures = measure_links(world, {.sizes = {16 * kKiB}, .repeat = 10});
  const std::string note = "ranks 0 and 1: over a made-up device";
  EXPECT_NE(link_text(figures, {}).find("links     made up 0-1\n          " + note + "\nhosts"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(link_json(figures, {}))["link_notes"], nlohmann::json::array({note}));
}

TEST(Json, has_the_rows_that_programs_read) {
  MadeUpWorld world(2);
  const auto json = nlohmann::json::parse(link_json(measure_links(world, {.sizes = {16 * kKiB}}), TokenCost{3, 0.5}));
  ASSERT_EQ(json["gate"].size(), 1u);
  for (const char* key : {"ranks", "bytes", "p50_us", "p99_us", "max_us", "floor_p50_us"})
    EXPECT_TRUE(json["gate"][0].contains(key)) << key;
  ASSERT_EQ(json["pairs"].size(), 2u);
  for (const char* key : {"from", "to", "bytes", "one_way_p50_us", "round_trip_p50_us", "push_gb_s"})
    EXPECT_TRUE(json["pairs"][0].contains(key)) << key;
  EXPECT_EQ(json["token"]["tokens_per_second"], 2000);
}

RankedLinkWorld world_of_threads(int ranks, Link wish) {
  return RankedLinkWorld({.ranks = ranks,
                          .wish = wish,
                          .timeout_ms = 20'000,
                          .launch = {.as = RanksAs::kThreads, .measure = serve_link_trials}});
}

TEST(RankedLinkWorld, measures_over_either_link_with_a_floor) {
  for (const Link wish : {Link::kAuto, Link::kTcp}) {
    RankedLinkWorld world = world_of_threads(3, wish);
    const LinkFigures figures = measure_links(world, {.sizes = {4 * kKiB, 128 * kKiB}, .repeat = 10});
    EXPECT_EQ(figures.failures, std::vector<std::string>());
    EXPECT_EQ(figures.wrong, 0);
    ASSERT_EQ(figures.pairs.size(), 12u);
    for (const PairFigures& pair : figures.pairs) {
      EXPECT_EQ(pair.link, wish == Link::kTcp ? "tcp" : "shm");
      EXPECT_TRUE(pair.one_clock);
      EXPECT_GT(pair.one_way.p50, 0);
      EXPECT_LE(pair.one_way.p50, pair.one_way.max);
      EXPECT_GT(pair.push_gb_s, 0);
    }
    ASSERT_EQ(figures.gate.size(), 2u);
    for (const GateFigures& gate : figures.gate) EXPECT_GT(gate.floor_p50_us.value_or(0), 0);
  }
}

TEST(RankedLinkWorld, refuses_vectors_that_do_not_fit_the_memory_and_goes_on) {
  RankedLinkWorld world = world_of_threads(3, Link::kAuto);
  EXPECT_THROW(world.run({.bytes = int64_t{1} << 50, .members = {0, 2}}), Error);
  for (const TrialReport& report : world.run({.bytes = 4096, .members = {0, 2}})) EXPECT_EQ(report.failure, "");
}

TEST(RankedLinkWorld, refuses_a_wish_that_the_ranks_cannot_be_granted) {
  EXPECT_THROW(world_of_threads(2, Link::kVerbs), Error);
}

}  // namespace
}  // namespace coprime
