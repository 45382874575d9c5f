// The figures of `coprime link` for a person and for a program.
#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/link.h"
#include "tools/link_words.h"

namespace coprime {
namespace {

// One matrix: a row for each rank that sends, a column for each that receives.
std::string matrix(const LinkFigures& figures, const std::string& title, int64_t bytes, int digits,
                   const std::function<double(const PairFigures&)>& value) {
  std::string text = title + "\nfrom\\to";
  for (int to = 0; to < figures.ranks; ++to) text += fmt::format("{:>10}", to);
  for (int from = 0; from < figures.ranks; ++from) {
    text += fmt::format("\n{:>7}", from);
    for (int to = 0; to < figures.ranks; ++to) {
      const auto pair = std::ranges::find_if(
          figures.pairs, [&](const PairFigures& p) { return p.bytes == bytes && p.from == from && p.to == to; });
      text += from == to                    ? fmt::format("{:>10}", "-")
              : pair == figures.pairs.end() ? fmt::format("{:>10}", "failed")
                                            : fmt::format("{:>10.{}f}", value(*pair), digits);
    }
  }
  return text + "\n\n";
}

std::string gate_table(const LinkFigures& figures) {
  std::string text = fmt::format("gate of {} ranks, us\n{:>10}{:>10}{:>10}{:>10}{:>12}{:>10}{:>12}\n", figures.ranks,
                                 "bytes", "p50", "p99", "max", "floor p50", "x floor", "owners p50");
  for (const GateFigures& gate : figures.gate) {
    text += fmt::format("{:>10}{:>10.2f}{:>10.2f}{:>10.2f}", bytes_text(gate.bytes), gate.gate.p50, gate.gate.p99,
                        gate.gate.max);
    if (gate.floor_p50_us) {
      text += fmt::format("{:>12.2f}{:>10.2f}", *gate.floor_p50_us, gate.gate.p50 / *gate.floor_p50_us);
    } else {
      text += fmt::format("{:>12}{:>10}", "-", "-");
    }
    text += fmt::format("{:>12.2f}\n", gate.owners.p50);
  }
  const auto has_floor = [](const GateFigures& gate) { return gate.floor_p50_us.has_value(); };
  if (!figures.gate.empty() && std::ranges::none_of(figures.gate, has_floor))
    text += "(no floor: links over RDMA have no bare exchange here)\n";
  return text + "\n";
}

std::string one_way_source(const LinkFigures& figures) {
  const auto by_clock = std::ranges::count_if(figures.pairs, &PairFigures::one_clock);
  if (by_clock == std::ssize(figures.pairs)) return "by one clock";
  if (by_clock == 0) return "between hosts: half of there and back";
  return "on one host by one clock, between hosts half of there and back";
}

// "shm 0-1; tcp 0-2, 1-2".
std::string links_text(const LinkFigures& figures) {
  std::map<std::string, std::vector<std::string>> pairs;
  std::set<std::pair<int, int>> seen;
  for (const PairFigures& pair : figures.pairs) {
    if (pair.from < pair.to && seen.insert({pair.from, pair.to}).second)
      pairs[pair.link].push_back(fmt::format("{}-{}", pair.from, pair.to));
  }
  std::vector<std::string> kinds;
  for (const auto& [kind, list] : pairs) kinds.push_back(fmt::format("{} {}", kind, fmt::join(list, ", ")));
  return kinds.empty() ? "none that works" : fmt::format("{}", fmt::join(kinds, "; "));
}

// "ranks 0, 1 on this host, 2 cores; rank 2 on 10.0.0.3, 8 cores".
std::string hosts_text(const std::vector<LinkHost>& hosts) {
  std::vector<std::string> texts;
  for (const LinkHost& host : hosts) {
    texts.push_back(fmt::format("rank{} {} on {}, {} core{}", host.ranks.size() == 1 ? "" : "s",
                                fmt::join(host.ranks, ", "), host.name, host.cores, host.cores == 1 ? "" : "s"));
  }
  return fmt::format("{}", fmt::join(texts, "; "));
}

}  // namespace

std::string link_text(const LinkFigures& figures, const std::optional<TokenCost>& token) {
  const int64_t small = latency_size(figures.options.sizes), large = bandwidth_size(figures.options.sizes);
  std::string text = fmt::format("links     {}\n", links_text(figures));
  for (const std::string& note : figures.notes) text += fmt::format("          {}\n", note);
  text += fmt::format("hosts     {}\nrepeats   {} of each transfer up to 64 KiB\n\n", hosts_text(figures.hosts),
                      figures.options.repeat);
  text += matrix(figures, fmt::format("one way of {}, p50 us ({})", bytes_text(small), one_way_source(figures)), small,
                 2, [](const PairFigures& pair) { return pair.one_way.p50; });
  text += matrix(figures, fmt::format("there and back of {}, p50 us", bytes_text(small)), small, 2,
                 [](const PairFigures& pair) { return pair.round_trip.p50; });
  text += matrix(figures, fmt::format("push of {}, GB/s", bytes_text(large)), large, 2,
                 [](const PairFigures& pair) { return pair.push_gb_s; });
  text += matrix(figures, fmt::format("both ways at once of {}, share of the two ways alone", bytes_text(large)), large,
                 2, [](const PairFigures& pair) { return pair.duplex_efficiency; });
  text += gate_table(figures);
  text += fmt::format("contents  {} vectors compared, {} wrong\nends      {} time-outs, {} bail-outs\n",
                      figures.transfers, figures.wrong, figures.timeouts, figures.bail_outs);
  for (const std::string& failure : figures.failures) text += fmt::format("failure   {}\n", failure);
  if (token) {
    text += fmt::format("a token   {} gates, {:.3f} ms in them: at most {:.0f} tokens/s however fast the ranks are\n",
                        token->gates, token->gate_ms, token->tokens_per_second());
  }
  text += "\n";
  for (const std::string& line : link_advice(figures)) text += fmt::format("- {}\n", line);
  return text;
}

std::string link_json(const LinkFigures& figures, const std::optional<TokenCost>& token) {
  using nlohmann::json;
  json pairs = json::array(), gates = json::array();
  for (const PairFigures& pair : figures.pairs) {
    pairs.push_back({{"from", pair.from},
                     {"to", pair.to},
                     {"bytes", pair.bytes},
                     {"link", pair.link},
                     {"one_way_by", pair.one_clock ? "one clock" : "half of the round trip"},
                     {"one_way_p50_us", pair.one_way.p50},
                     {"one_way_p99_us", pair.one_way.p99},
                     {"one_way_max_us", pair.one_way.max},
                     {"round_trip_p50_us", pair.round_trip.p50},
                     {"round_trip_p99_us", pair.round_trip.p99},
                     {"round_trip_max_us", pair.round_trip.max},
                     {"push_gb_s", pair.push_gb_s},
                     {"duplex_efficiency", pair.duplex_efficiency}});
  }
  for (const GateFigures& gate : figures.gate) {
    gates.push_back({{"ranks", gate.ranks},
                     {"bytes", gate.bytes},
                     {"p50_us", gate.gate.p50},
                     {"p99_us", gate.gate.p99},
                     {"max_us", gate.gate.max},
                     {"floor_p50_us", gate.floor_p50_us ? json(*gate.floor_p50_us) : json()},
                     {"owners_p50_us", gate.owners.p50}});
  }
  json hosts = json::array();
  for (const LinkHost& host : figures.hosts)
    hosts.push_back({{"name", host.name}, {"ranks", host.ranks}, {"cores", host.cores}});
  json object{{"ranks", figures.ranks},
              {"hosts", hosts},
              {"link_notes", figures.notes},
              {"repeat", figures.options.repeat},
              {"gate_timeout_ms", figures.timeout_ms},
              {"pairs", pairs},
              {"gate", gates},
              {"transfers", figures.transfers},
              {"wrong", figures.wrong},
              {"timeouts", figures.timeouts},
              {"bail_outs", figures.bail_outs},
              {"failures", figures.failures},
              {"advice", link_advice(figures)}};
  if (token) {
    object["token"] = {
        {"gates", token->gates}, {"gate_ms", token->gate_ms}, {"tokens_per_second", token->tokens_per_second()}};
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace coprime
