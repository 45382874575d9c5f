#include "engine/linking.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace coprime {
namespace {

struct Groups {
  std::vector<std::vector<int>> of;   // by rank
  std::vector<std::string> failures;  // by rank: why its group shares nothing; empty if it does, or if there is none
  bool shares(int a, int b) const {
    const auto& group = of[static_cast<size_t>(a)];
    return std::ranges::find(group, b) != group.end() && failures[static_cast<size_t>(a)].empty();
  }
};

Groups share_memory(World& world, std::span<const RankPlace> places, const LinkOptions& options) {
  Groups groups;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    groups.of.push_back(memory_group(options.wish, places, rank));
    const auto on_host = std::ranges::count(places, places[static_cast<size_t>(rank)].host, &RankPlace::host);
    world.send_json(rank, MessageType::kGroup, RankGroup{options.epoch, groups.of.back(), static_cast<int>(on_host)});
  }
  std::vector<GroupResult> results;
  for (const Message& message : world.collect(MessageType::kShared, "while sharing memory"))
    results.push_back(from_json<GroupResult>(message_text(message)));
  // A group shares only if every member says so: the last word between two of them may be lost.
  groups.failures.resize(results.size());
  for (size_t rank = 0; rank < results.size(); ++rank) {
    for (int member : groups.of[rank]) {
      const GroupResult& result = results[static_cast<size_t>(member)];
      if (!result.shared && groups.failures[rank].empty())
        groups.failures[rank] = result.failure.empty() ? "for no known reason" : result.failure;
    }
  }
  return groups;
}

LinkTable table_of(World& world, std::span<const RankFacts> facts, std::span<const RankPlace> places,
                   const Groups& groups, const LinkOptions& options, int rank) {
  LinkTable table;
  for (int peer = 0; peer < world.ranks(); ++peer) {
    LinkTable::Peer entry{.host = world.host(peer), .port = facts[static_cast<size_t>(peer)].port};
    if (peer != rank) {
      const int low = std::min(rank, peer), high = std::max(rank, peer);  // the same words for both ends
      entry.link = choose_link(options.wish, places, low, high, groups.shares(low, high),
                               groups.failures[static_cast<size_t>(low)]);
    }
    table.peers.push_back(std::move(entry));
  }
  return table;
}

LinkNames names_of(std::span<const LinkReport> reports) {
  LinkNames names;
  for (const LinkReport& report : reports) names.push_back(report.names);
  return names;
}

std::vector<std::string> notes_of(std::span<const LinkTable> tables, std::span<const RankFacts> facts,
                                  std::span<const LinkReport> reports, std::vector<std::string> fallbacks,
                                  const LinkOptions& options) {
  std::vector<std::string> notes = std::move(fallbacks);
  for (size_t a = 0; a < reports.size(); ++a) {
    for (size_t b = a + 1; b < reports.size(); ++b) {
      if (const std::string& detail = reports[a].details.at(b); !detail.empty())
        notes.push_back(fmt::format("ranks {} and {}: {}", a, b, detail));
    }
  }
  const auto has_tcp = [](const LinkTable& table) {
    return std::ranges::any_of(table.peers, [](const LinkTable::Peer& peer) { return peer.link == Link::kTcp; });
  };
  if (options.wish != Link::kAuto || std::ranges::none_of(tables, has_tcp)) return notes;
  for (std::string& note : no_verbs_notes(facts)) notes.push_back(std::move(note));
  return notes;
}

}  // namespace

MadeLinks make_links(World& world, std::span<const RankFacts> facts, const LinkOptions& options) {
  std::vector<RankPlace> places;
  for (const RankFacts& rank : facts) places.push_back({rank.host, rank.no_verbs, rank.no_ucx});
  const Groups groups = share_memory(world, places, options);
  std::vector<LinkTable> tables;
  try {
    for (int rank = 0; rank < world.ranks(); ++rank)
      tables.push_back(table_of(world, facts, places, groups, options, rank));
  } catch (const Error& error) {
    world.stop(error.what());
    throw;
  }
  const auto needs_windows = [](const LinkTable& table) {
    return std::ranges::any_of(table.peers, [](const LinkTable::Peer& peer) { return peer.link == Link::kVerbs; });
  };
  const bool windowed = std::ranges::any_of(tables, needs_windows);
  for (LinkTable& table : tables) table.windowed = windowed;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    const std::string& failure = groups.failures[static_cast<size_t>(rank)];
    const auto& group = groups.of[static_cast<size_t>(rank)];
    if (!failure.empty() && group.front() == rank)
      world.report(fmt::format("ranks {} share no memory and use slower links: {}", fmt::join(group, ", "), failure));
    world.send_json(rank, MessageType::kConnect, tables[static_cast<size_t>(rank)]);
  }
  std::vector<LinkReport> reports;
  for (const Message& message : world.collect(MessageType::kConnected, "while the ranks were connecting"))
    reports.push_back(from_json<LinkReport>(message_text(message)));
  const std::vector<std::string> fallbacks = fallback_notes(reports);
  if (options.wish == Link::kVerbs && !fallbacks.empty()) {
    const std::string reason = fmt::format("--link verbs: {}: use --link auto", fallbacks[0]);
    world.stop(reason);
    fail(ErrorKind::kLink, "{}", reason);
  }
  for (const std::string& fallback : fallbacks) world.report(fallback);
  return {names_of(reports), notes_of(tables, facts, reports, fallbacks, options)};
}

std::vector<std::string> no_verbs_notes(std::span<const RankFacts> facts) {
  std::map<std::string, std::vector<size_t>> ranks;  // by reason
  for (size_t rank = 0; rank < facts.size(); ++rank) {
    if (!facts[rank].no_verbs.empty()) ranks[facts[rank].no_verbs].push_back(rank);
  }
  std::vector<std::string> notes;
  for (const auto& [reason, list] : ranks) {
    notes.push_back(
        fmt::format("no RDMA on rank{} {}: {}", list.size() == 1 ? "" : "s", fmt::join(list, ", "), reason));
  }
  return notes;
}

std::vector<std::string> fallback_notes(std::span<const LinkReport> reports) {
  std::vector<std::string> notes;
  for (size_t a = 0; a < reports.size(); ++a) {
    for (size_t b = a + 1; b < reports.size(); ++b) {
      const std::string& refusal = reports[a].refusals.at(b);
      if (!refusal.empty()) notes.push_back(fmt::format("ranks {} and {} use tcp, not verbs: {}", a, b, refusal));
    }
  }
  return notes;
}

std::string links_text(const LinkNames& names) {
  std::map<std::string, std::vector<std::string>> pairs;
  for (size_t a = 0; a < names.size(); ++a) {
    for (size_t b = a + 1; b < names[a].size(); ++b) pairs[names[a][b]].push_back(fmt::format("{}-{}", a, b));
  }
  std::vector<std::string> kinds;
  for (const auto& [kind, list] : pairs) kinds.push_back(fmt::format("{} {}", kind, fmt::join(list, ", ")));
  return fmt::format("{}", fmt::join(kinds, "; "));
}

}  // namespace coprime
