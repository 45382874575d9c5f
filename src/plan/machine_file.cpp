#include "plan/machine_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/limits.h"
#include "json/json.h"

namespace coprime {
namespace {

constexpr int64_t kMaxFileBytes = 16 << 20, kMaxBytes = int64_t{1} << 50, kMaxThreads = 1 << 16;
constexpr double kMaxFigure = 1e12;
constexpr size_t kMaxEntries = 1 << 16;

void refuse_unknown(const JsonObject& object, std::initializer_list<std::string_view> known) {
  for (const auto& field : object.raw()) {
    if (std::ranges::find(known, field.key) != known.end()) continue;
    fail(ErrorKind::kModel, "{} is no key of a machine; expected one of {}", object.path(printable(field.key)),
         fmt::join(known, ", "));
  }
}

double positive_or(const JsonObject& object, std::string_view key, double otherwise) {
  const auto value = object.number(key);
  if (!value) return otherwise;
  if (!(*value > 0 && *value <= kMaxFigure)) {
    fail(ErrorKind::kModel, "{} is {}; expected a number above 0, at most {:g}", object.path(key),
         describe(*object.find(key)), kMaxFigure);
  }
  return *value;
}

double positive(const JsonObject& object, std::string_view key) {
  const double value = positive_or(object, key, 0);
  if (value == 0) fail(ErrorKind::kModel, "{} is missing; expected a number above 0", object.path(key));
  return value;
}

// 0 is a fitted link's, of whose time all moves bytes.
std::optional<double> latency_of(const JsonObject& object) {
  const auto value = object.number("latency_us");
  if (value && !(*value >= 0 && *value <= kMaxFigure)) {
    fail(ErrorKind::kModel, "{} is {}; expected a number from 0 to {:g}", object.path("latency_us"),
         describe(*object.find("latency_us")), kMaxFigure);
  }
  return value;
}

std::string text_or(const JsonObject& object, std::string_view key, std::string otherwise) {
  const auto text = object.string(key);
  return text ? printable(*text) : std::move(otherwise);
}

// Each element of a list of objects.
template <class Read>
void each_object(const JsonObject& object, std::string_view key, const Read& read) {
  const auto list = object.array(key);
  if (!list) return;
  if (list->size() > kMaxEntries)
    fail(ErrorKind::kModel, "{} has {} entries; expected {} at most", object.path(key), list->size(), kMaxEntries);
  size_t index = 0;
  for (const simdjson::dom::element element : *list) {
    const std::string where = fmt::format("{}[{}]", object.path(key), index++);
    simdjson::dom::object entry;
    if (element.get(entry) != simdjson::SUCCESS)
      fail(ErrorKind::kModel, "{} is {}; expected an object", where, describe(element));
    read(JsonObject(entry, where + "."));
  }
}

int64_t threads_of(const JsonObject& entry) { return entry.required_integer("threads", 1, kMaxThreads); }
int64_t bytes_of(const JsonObject& entry) { return entry.required_integer("bytes", 1, kMaxBytes); }

class MachineReader {
 public:
  MachineReader(const JsonObject& root, const std::string& where) : root_(root) {
    refuse_unknown(
        root, {"name", "ranks", "hosts", "links", "pairs", "gate", "shares", "repeat", "link_notes", "gate_timeout_ms",
               "transfers", "wrong", "timeouts", "bail_outs", "failures", "advice", "token"});
    machine_.name = text_or(root, "name", where);
    machine_.source = where;
    machine_.measured = true;
  }

  Machine read() {
    root_.integer("ranks", 1, kMaxRanks);
    each_object(root_, "hosts", [&](const JsonObject& entry) { read_host(entry); });
    each_object(root_, "gate", [&](const JsonObject& entry) { read_gate(entry); });
    read_pairs();
    each_object(root_, "links", [&](const JsonObject& entry) { read_link(entry); });
    read_shares();
    if (machine_.hosts.empty() && machine_.gates.empty() && machine_.pairs.empty() && !machine_.link) {
      fail(ErrorKind::kModel, "{} is missing; expected a list of hosts, or links or gates that were measured",
           root_.path("hosts"));
    }
    for (MeasuredGates& gates : machine_.gates) {
      std::ranges::sort(gates.points, {}, &GatePoint::bytes);
      const auto twice = std::ranges::adjacent_find(gates.points, {}, &GatePoint::bytes);
      if (twice != gates.points.end())
        fail(ErrorKind::kModel, "{} has {} bytes over {} among {} ranks twice; expected each size once",
             root_.path("gate"), twice->bytes, gates.link, gates.ranks);
    }
    return std::move(machine_);
  }

 private:
  void read_host(const JsonObject& entry) {
    refuse_unknown(entry, {"name", "ranks", "cores", "memory_bytes", "gflops", "front_us", "read", "products",
                           "attention", "states", "layers"});
    MachineHost host{.name = text_or(entry, "name", fmt::format("host {}", machine_.hosts.size()))};
    if (const auto ranks = entry.array("ranks")) {
      for (const simdjson::dom::element element : *ranks) {
        int64_t rank = -1;
        if (element.get(rank) != simdjson::SUCCESS || rank < 0 || rank >= kMaxRanks)
          fail(ErrorKind::kModel, "{} holds {}; expected integers in 0..{}", entry.path("ranks"), describe(element),
               kMaxRanks - 1);
        if (!placed_.insert(static_cast<int>(rank)).second)
          fail(ErrorKind::kModel, "{} holds {}, which stands twice; expected each rank on one host",
               entry.path("ranks"), rank);
        host.ranks.push_back(static_cast<int>(rank));
      }
    }
    host.cores = entry.integer("cores", 1, kMaxThreads).value_or(0);
    host.memory_bytes = entry.integer("memory_bytes", 1, kMaxBytes).value_or(0);
    host.gflops = positive_or(entry, "gflops", 0);
    host.front_us = positive_or(entry, "front_us", 0);
    const auto read_rates = [&](const char* key, auto* figures) {
      each_object(entry, key, [this, figures](const JsonObject& figure) {
        refuse_unknown(figure, {"threads", "bytes", "gb_s"});
        figures->push_back({threads_of(figure), bytes_of(figure), positive(figure, "gb_s")});
      });
    };
    read_rates("read", &host.read);
    read_rates("attention", &host.attention);
    read_rates("states", &host.states);
    each_object(entry, "products", [&](const JsonObject& figure) {
      refuse_unknown(figure, {"format", "threads", "bytes", "gb_s"});
      host.products.push_back(
          {text_or(figure, "format", ""), threads_of(figure), bytes_of(figure), positive(figure, "gb_s")});
    });
    each_object(entry, "layers", [&](const JsonObject& figure) {
      refuse_unknown(figure, {"threads", "attention_us", "linear_us"});
      host.layers.push_back({threads_of(figure), positive(figure, "attention_us"), positive(figure, "linear_us")});
    });
    machine_.hosts.push_back(std::move(host));
  }

  void read_gate(const JsonObject& entry) {
    refuse_unknown(entry, {"link", "ranks", "bytes", "p50_us", "p99_us", "max_us", "floor_p50_us", "owners_p50_us"});
    const std::string link = text_or(entry, "link", "links of all ranks");
    const int64_t ranks = entry.required_integer("ranks", 2, kMaxRanks);
    const GatePoint point{bytes_of(entry), positive(entry, "p50_us")};
    for (MeasuredGates& gates : machine_.gates) {
      if (gates.link == link && gates.ranks == ranks) {
        gates.points.push_back(point);
        return;
      }
    }
    machine_.gates.push_back({link, ranks, {point}});
  }

  int rank_of(const JsonObject& entry, std::string_view key) const {
    const auto rank = static_cast<int>(entry.required_integer(key, 0, kMaxRanks - 1));
    if (!placed_.empty() && !placed_.contains(rank))
      fail(ErrorKind::kModel, "{} is {}; expected a rank that a host has", entry.path(key), rank);
    return rank;
  }

  // As `coprime link` writes them: the smallest size gives the latency, the largest the bandwidth.
  void read_pairs() {
    struct Seen {
      std::string link;
      int64_t small = 0, large = 0;
      double us = 0, gb_s = 0;
    };
    std::map<std::pair<int, int>, Seen> pairs;
    each_object(root_, "pairs", [&](const JsonObject& entry) {
      refuse_unknown(entry,
                     {"from", "to", "bytes", "link", "one_way_by", "one_way_p50_us", "one_way_p99_us", "one_way_max_us",
                      "round_trip_p50_us", "round_trip_p99_us", "round_trip_max_us", "push_gb_s", "duplex_efficiency"});
      const int from = rank_of(entry, "from"), to = rank_of(entry, "to");
      if (from == to) fail(ErrorKind::kModel, "{} is {}, as \"from\" is; expected another rank", entry.path("to"), to);
      const int64_t bytes = bytes_of(entry);
      const double us = positive(entry, "one_way_p50_us"), gb_s = positive(entry, "push_gb_s");
      Seen& seen = pairs[std::minmax(from, to)];
      seen.link = text_or(entry, "link", "a measured link");
      // Of the two directions the slower one counts.
      if (seen.small == 0 || bytes < seen.small || (bytes == seen.small && us > seen.us))
        seen.small = bytes, seen.us = us;
      if (bytes > seen.large || (bytes == seen.large && gb_s < seen.gb_s)) seen.large = bytes, seen.gb_s = gb_s;
    });
    for (const auto& [ends, seen] : pairs) {
      const double moving = static_cast<double>(seen.small) / (seen.gb_s * 1e3);
      machine_.pairs.push_back({ends.first,
                                ends.second,
                                {.name = seen.link,
                                 .title = seen.link,
                                 .latency_us = std::max(seen.us - moving, 0.0),
                                 .gb_s = seen.gb_s,
                                 .source = "measured"}});
    }
  }

  // By hand: of a pair, or without one of all pairs; by name, or by figures.
  void read_link(const JsonObject& entry) {
    refuse_unknown(entry, {"from", "to", "link", "latency_us", "gb_s"});
    LinkNumbers link;
    if (const auto name = entry.string("link")) {
      const LinkNumbers* const known = find_link(*name);
      if (known == nullptr && !(entry.has("latency_us") && entry.has("gb_s"))) {
        std::vector<std::string> names;
        for (const LinkNumbers& typical : typical_links()) names.push_back(typical.name);
        fail(ErrorKind::kModel, "{} is \"{}\"; expected one of {}, or latency_us and gb_s beside it",
             entry.path("link"), printable(*name), fmt::join(names, ", "));
      }
      if (known != nullptr) link = *known;
      if (known == nullptr) link.name = link.title = printable(*name);
    } else {
      link.name = link.title = "a link of the file";
      if (!latency_of(entry)) fail(ErrorKind::kModel, "{} is missing; expected microseconds", entry.path("latency_us"));
      positive(entry, "gb_s");
    }
    link.latency_us = latency_of(entry).value_or(link.latency_us);
    link.gb_s = positive_or(entry, "gb_s", link.gb_s);
    if (!entry.has("from") && !entry.has("to")) {
      machine_.link = link;
      return;
    }
    const int from = rank_of(entry, "from"), to = rank_of(entry, "to");
    if (from == to) fail(ErrorKind::kModel, "{} is {}, as \"from\" is; expected another rank", entry.path("to"), to);
    machine_.pairs.push_back({from, to, link});
  }

  void read_shares() {
    const auto list = root_.array("shares");
    if (!list) return;
    for (const simdjson::dom::element element : *list) {
      double share = 0;
      if (element.get(share) != simdjson::SUCCESS || !(share > 0 && share <= kMaxFigure))
        fail(ErrorKind::kModel, "{} holds {}; expected numbers above 0, one a rank", root_.path("shares"),
             describe(element));
      machine_.shares.push_back(share);
    }
    if (machine_.shares.size() > kMaxRanks || (!placed_.empty() && machine_.shares.size() != placed_.size())) {
      fail(ErrorKind::kModel, "{} has {} entries; expected one for each of the {} ranks", root_.path("shares"),
           machine_.shares.size(), placed_.empty() ? size_t{kMaxRanks} : placed_.size());
    }
  }

  const JsonObject& root_;
  Machine machine_;
  std::set<int> placed_;
};

nlohmann::json host_json(const MachineHost& host) {
  using nlohmann::json;
  json products = json::array(), layers = json::array();
  const auto figures_json = [](std::span<const ReadFigure> figures) {
    json list = json::array();
    for (const ReadFigure& f : figures) list.push_back({{"threads", f.threads}, {"bytes", f.bytes}, {"gb_s", f.gb_s}});
    return list;
  };
  for (const ProductFigure& f : host.products)
    products.push_back({{"format", f.format}, {"threads", f.threads}, {"bytes", f.bytes}, {"gb_s", f.gb_s}});
  for (const LayerFigure& f : host.layers)
    layers.push_back({{"threads", f.threads}, {"attention_us", f.attention_us}, {"linear_us", f.linear_us}});
  json object{{"name", host.name},
              {"ranks", host.ranks},
              {"read", figures_json(host.read)},
              {"products", products},
              {"layers", layers}};
  if (host.cores > 0) object["cores"] = host.cores;
  if (!host.attention.empty()) object["attention"] = figures_json(host.attention);
  if (!host.states.empty()) object["states"] = figures_json(host.states);
  if (host.memory_bytes > 0) object["memory_bytes"] = host.memory_bytes;
  if (host.gflops > 0) object["gflops"] = host.gflops;
  if (host.front_us > 0) object["front_us"] = host.front_us;
  return object;
}

}  // namespace

Machine parse_machine(std::string_view json, const std::string& where) {
  const JsonDocument document(json, where);
  const JsonObject root = document.root();
  return MachineReader(root, where).read();
}

Machine read_machine(const std::filesystem::path& path) {
  return parse_machine(read_text_file(path, kMaxFileBytes), path.string());
}

Machine merge_machines(const Machine& earlier, Machine later) {
  if (later.hosts.empty()) later.hosts = earlier.hosts;
  for (MachineHost& host : later.hosts) {
    if (!host.read.empty() || earlier.hosts.empty()) continue;
    const auto same = std::ranges::find(earlier.hosts, host.name, &MachineHost::name);
    const MachineHost& known = same != earlier.hosts.end() ? *same : earlier.hosts.front();
    MachineHost filled = known;
    filled.name = host.name;
    filled.ranks = host.ranks;
    if (host.memory_bytes > 0) filled.memory_bytes = host.memory_bytes;
    if (host.cores > 0) filled.cores = host.cores;
    host = std::move(filled);
  }
  if (later.gates.empty() && later.pairs.empty() && !later.link)
    later.gates = earlier.gates, later.pairs = earlier.pairs;
  if (!later.link) later.link = earlier.link;  // a link of some pairs leaves that of the others as it was
  if (later.shares.empty()) later.shares = earlier.shares;
  later.measured = later.measured && earlier.measured;
  later.source = earlier.source + " and " + later.source;
  return later;
}

std::string machine_json(const Machine& machine) {
  using nlohmann::json;
  json hosts = json::array(), gates = json::array(), links = json::array();
  size_t ranks = 0;
  for (const MachineHost& host : machine.hosts) {
    hosts.push_back(host_json(host));
    ranks += host.ranks.size();
  }
  for (const MeasuredGates& measured : machine.gates) {
    for (const GatePoint& point : measured.points)
      gates.push_back(
          {{"link", measured.link}, {"ranks", measured.ranks}, {"bytes", point.bytes}, {"p50_us", point.us}});
  }
  const auto link_json = [](const LinkNumbers& link) {
    return json{{"link", link.name}, {"latency_us", link.latency_us}, {"gb_s", link.gb_s}};
  };
  if (machine.link) links.push_back(link_json(*machine.link));
  for (const PairLink& pair : machine.pairs) {
    json entry = link_json(pair.link);
    entry["from"] = pair.from;
    entry["to"] = pair.to;
    links.push_back(std::move(entry));
  }
  json object{{"name", machine.name}, {"hosts", hosts}, {"links", links}, {"gate", gates}};
  if (ranks > 0) object["ranks"] = ranks;
  if (!machine.shares.empty()) object["shares"] = machine.shares;
  return object.dump(1, ' ', false, json::error_handler_t::replace);
}

}  // namespace coprime
