#include "plan/machine_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"

namespace coprime {
namespace {

constexpr std::string_view kFile = R"({"name": "three boxes",
 "hosts": [{"name": "a", "ranks": [0, 1], "cores": 8, "memory_bytes": 64000000000, "gflops": 900, "front_us": 25,
            "read": [{"threads": 1, "bytes": 268435456, "gb_s": 18.5}, {"threads": 8, "bytes": 268435456, "gb_s": 61}],
            "products": [{"format": "BF16", "threads": 8, "bytes": 100000000, "gb_s": 55}],
            "attention": [{"threads": 8, "bytes": 1000000, "gb_s": 15}],
            "states": [{"threads": 8, "bytes": 1000000, "gb_s": 12}],
            "layers": [{"threads": 4, "attention_us": 9, "linear_us": 11}]},
           {"name": "b", "ranks": [2], "cores": 4, "read": [{"threads": 4, "bytes": 268435456, "gb_s": 30}]}],
 "links": [{"link": "10g"}, {"from": 0, "to": 1, "latency_us": 1.5, "gb_s": 6}],
 "shares": [2, 2, 1]})";

// What `coprime link --ranks 2 --json` prints.
constexpr std::string_view kLinkFile = R"({"advice":["two ranks: push"],"bail_outs":0,"failures":[],"gate":[
 {"bytes":4096,"floor_p50_us":2.1,"max_us":90.5,"owners_p50_us":4.2,"p50_us":3.5,"p99_us":9.75,"ranks":2},
 {"bytes":16384,"floor_p50_us":null,"max_us":80,"owners_p50_us":7,"p50_us":6.5,"p99_us":12,"ranks":2}],
 "gate_timeout_ms":750,"hosts":[{"cores":2,"name":"this host","ranks":[0,1]}],"link_notes":[],"pairs":[
 {"bytes":4096,"duplex_efficiency":0.9,"from":0,"link":"tcp","one_way_by":"one clock","one_way_max_us":9,"one_way_p50_us":8,
  "one_way_p99_us":9,"push_gb_s":1.5,"round_trip_max_us":20,"round_trip_p50_us":16,"round_trip_p99_us":18,"to":1},
 {"bytes":16384,"duplex_efficiency":0.9,"from":1,"link":"tcp","one_way_by":"one clock","one_way_max_us":9,"one_way_p50_us":12,
  "one_way_p99_us":9,"push_gb_s":2.0,"round_trip_max_us":20,"round_trip_p50_us":16,"round_trip_p99_us":18,"to":0}],
 "ranks":2,"repeat":500,"timeouts":0,"transfers":100,"wrong":0})";

std::string refusal(std::string_view text) {
  try {
    parse_machine(text, "here.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
  return "read";
}

TEST(MachineFile, of_a_person_is_read) {
  const Machine machine = parse_machine(kFile, "here.json");
  ASSERT_EQ(machine.hosts.size(), 2u);
  EXPECT_EQ(machine.hosts[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(machine.hosts[0].read[1], (ReadFigure{8, 268435456, 61}));
  EXPECT_EQ(machine.hosts[0].products[0], (ProductFigure{"BF16", 8, 100000000, 55}));
  EXPECT_EQ(machine.hosts[1].layers.size(), 0u);
  EXPECT_EQ(machine.link->gb_s, find_link("10g")->gb_s);
  ASSERT_EQ(machine.pairs.size(), 1u);
  EXPECT_EQ(machine.pairs[0].link.latency_us, 1.5);
  EXPECT_EQ(machine.shares, (std::vector<double>{2, 2, 1}));
}

TEST(MachineFile, of_coprime_link_is_read_too) {
  const Machine machine = parse_machine(kLinkFile, "link.json");
  ASSERT_EQ(machine.gates.size(), 1u);
  EXPECT_EQ(machine.gates[0].points, (std::vector<GatePoint>{{4096, 3.5}, {16384, 6.5}}));
  ASSERT_EQ(machine.pairs.size(), 1u);
  EXPECT_EQ(machine.pairs[0].link.gb_s, 2.0);
  EXPECT_NEAR(machine.pairs[0].link.latency_us, 8 - 4096 / 2000.0, 1e-9);
}

TEST(MachineFile, that_is_written_reads_as_the_same_machine) {
  const Machine machine = parse_machine(kFile, "here.json");
  const Machine again = parse_machine(machine_json(machine), "again.json");
  EXPECT_EQ(again.name, machine.name);
  EXPECT_EQ(again.hosts, machine.hosts);
  EXPECT_EQ(again.shares, machine.shares);
  EXPECT_EQ(again.link->gb_s, machine.link->gb_s);
  ASSERT_EQ(again.pairs.size(), 1u);
  EXPECT_EQ(again.pairs[0].link.gb_s, 6);
  const Machine measured = parse_machine(kLinkFile, "link.json");
  EXPECT_EQ(parse_machine(machine_json(measured), "again.json").gates, measured.gates);
  Machine fitted = machine;
  fitted.link->latency_us = 0;
  EXPECT_EQ(parse_machine(machine_json(fitted), "again.json").link->latency_us, 0);
}

TEST(MachineFile, that_is_wrong_is_refused_with_path_key_expected_and_found) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "here.json: 0 bytes that are not JSON"},
      {"[1]", "here.json: the JSON is [1]; expected an object"},
      {"{}", "here.json: hosts is missing; expected a list of hosts"},
      {R"({"hosts": 3})", "here.json: hosts is 3; expected a list"},
      {R"({"hosts": [3]})", "here.json: hosts[0] is 3; expected an object"},
      {R"({"hosts": [{"speed": 3}]})", "here.json: hosts[0].speed is no key of a machine; expected one of name, ranks"},
      {R"({"hosts": [{"cores": 0}]})", "here.json: hosts[0].cores is 0; expected an integer in 1..65536"},
      {R"({"hosts": [{"ranks": [0, 0]}]})", "here.json: hosts[0].ranks holds 0, which stands twice"},
      {R"({"hosts": [{"ranks": [16]}]})", "here.json: hosts[0].ranks holds 16; expected integers in 0..15"},
      {R"({"hosts": [{"read": [{"threads": 1, "bytes": 10}]}]})", "here.json: hosts[0].read[0].gb_s is missing"},
      {R"({"hosts": [{"read": [{"threads": 1, "bytes": 10, "gb_s": -2}]}]})",
       "here.json: hosts[0].read[0].gb_s is -2; expected a number above 0"},
      {R"({"hosts": [{"read": [{"threads": 1, "bytes": 10, "gb_s": "fast"}]}]})",
       "here.json: hosts[0].read[0].gb_s is \"fast\"; expected a number"},
      {R"({"links": [{"link": "infiniband"}]})", "here.json: links[0].link is \"infiniband\"; expected one of 1g, 10g"},
      {R"({"links": [{"gb_s": 3}]})", "here.json: links[0].latency_us is missing"},
      {R"({"links": [{"latency_us": -1, "gb_s": 3}]})",
       "here.json: links[0].latency_us is -1; expected a number from 0"},
      {R"({"links": [{"latency_us": 3}]})", "here.json: links[0].gb_s is missing"},
      {R"({"hosts": [{"ranks": [0]}], "links": [{"from": 0, "to": 4, "link": "1g"}]})",
       "here.json: links[0].to is 4; expected a rank that a host has"},
      {R"({"links": [{"from": 1, "to": 1, "link": "1g"}]})", "here.json: links[0].to is 1, as \"from\" is"},
      {R"({"gate": [{"ranks": 2, "bytes": 8, "p50_us": 1}, {"ranks": 2, "bytes": 8, "p50_us": 1}]})",
       "here.json: gate has 8 bytes over links of all ranks among 2 ranks twice"},
      {R"({"hosts": [{"ranks": [0, 1]}], "shares": [1]})",
       "here.json: shares has 1 entries; expected one for each of the 2"},
      {R"({"hosts": [{}], "shares": [0]})", "here.json: shares holds 0; expected numbers above 0"},
      {R"({"hosts": [{}], "hosts": [{}]})", "here.json: key \"hosts\" stands twice"},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(refusal(text).substr(0, expected.size()), expected) << text;
}

TEST(MachineFile, of_links_takes_its_hosts_speed_from_an_earlier_file) {
  const Machine probe = parse_machine(kFile, "here.json");
  const Machine both = merge_machines(probe, parse_machine(kLinkFile, "link.json"));
  ASSERT_EQ(both.hosts.size(), 1u);
  EXPECT_EQ(both.hosts[0].name, "this host");
  EXPECT_EQ(both.hosts[0].ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(both.hosts[0].read, probe.hosts[0].read);
  EXPECT_EQ(both.gates.size(), 1u);
}

TEST(MachineFile, of_a_pair_leaves_the_link_of_all_others) {
  const Machine pair = parse_machine(R"({"links": [{"from": 0, "to": 1, "link": "nvlink"}]})", "pair.json");
  EXPECT_FALSE(pair.link.has_value());
  EXPECT_EQ(merge_machines(*find_machine("desktop"), pair).link, *find_link("10g"));
  const Machine all = parse_machine(R"({"links": [{"link": "1g"}]})", "all.json");
  EXPECT_EQ(merge_machines(*find_machine("desktop"), all).link, *find_link("1g"));
  EXPECT_FALSE(parse_machine(machine_json(pair), "again.json").link.has_value());
}

// Whatever a file holds, it is read or refused; what is read can be planned with.
TEST(MachineFileMutations, each_changed_file_is_read_or_refused) {
  static constexpr const char* kWords[] = {
      "null", "-1", "1e309", "1e300", "\"\"", "{}", "[]", "0", "9223372036854775807", "2", "true"};
  std::mt19937 random(5);
  const auto below = [&](size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random); };
  int read = 0, refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::string text(i % 2 == 0 ? kFile : kLinkFile);
    for (size_t changes = 1 + below(3); changes > 0; --changes) {
      const size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(below(256));
          break;
        case 1:
          text.erase(at, 1 + below(30));
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), below(40)));
          break;
        default: {
          const size_t begin = text.find_first_of("\"0123456789{[", at);
          if (begin == std::string::npos) break;
          const size_t end = text.find_first_of(text[begin] == '"' ? "\"" : ",]}:", begin + 1);
          if (end == std::string::npos) break;
          text.replace(begin, end - begin + (text[begin] == '"' ? 1 : 0), kWords[below(std::size(kWords))]);
        }
      }
      if (text.empty()) text = "{";
    }
    try {
      Machine machine = parse_machine(text, "changed");
      ++read;
      if (machine.hosts.empty()) continue;
      const auto placement = place_ranks(machine, 2);
      EXPECT_TRUE(std::isfinite(machine_gate_us(machine, placement, 16384)));
      for (size_t rank = 0; rank < 2; ++rank) {
        const RankSpeed speed = rank_speed(machine, placement, rank);
        if (!speed.host->read.empty()) {
          EXPECT_GT(speed.read_gb_s(1e8), 0);
        }
      }
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()), "");
    }
  }
  EXPECT_GT(read, 80);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace coprime
