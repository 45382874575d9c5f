#include "engine/linking.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hex.h"
#include "transport/mesh.h"
#include "transport/secret_key.h"

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

bool is_member(const LinkOptions& options, int rank) { return (options.members >> rank & 1) != 0; }

Groups share_memory(World& world, std::span<const RankPlace> places, const LinkOptions& options) {
  Groups groups;
  groups.of.resize(places.size());
  groups.failures.resize(places.size());
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (!is_member(options, rank)) continue;
    std::vector<int>& group = groups.of[static_cast<size_t>(rank)];
    group = memory_group(options.wish, places, rank);
    std::erase_if(group, [&](int peer) { return !is_member(options, peer); });
    if (group.size() < 2) group.clear();
    const auto members_of_host = [&](int end) {  // those before rank `end`
      int count = 0;
      for (int peer = 0; peer < end; ++peer)
        count += is_member(options, peer) &&
                 places[static_cast<size_t>(peer)].host == places[static_cast<size_t>(rank)].host;
      return count;
    };
    world.send_json(rank, MessageType::kGroup,
                    RankGroup{options.epoch, group, members_of_host(world.ranks()), members_of_host(rank)});
  }
  std::vector<GroupResult> results(places.size());
  const auto reports = world.collect(MessageType::kShared, "while sharing memory", options.patience, options.members);
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (is_member(options, static_cast<int>(rank))) results[rank] = from_json<GroupResult>(message_text(reports[rank]));
  }
  // A group shares only if every member says so: the last word between two of them may be lost.
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
    if (peer != rank && is_member(options, peer)) {
      const int low = std::min(rank, peer), high = std::max(rank, peer);  // the same words for both ends
      entry.link = choose_link(options.wish, places, low, high, groups.shares(low, high),
                               groups.failures[static_cast<size_t>(low)]);
      if (options.wish == Link::kAuto && entry.link == Link::kVerbs && options.without_verbs.contains({low, high}))
        entry.link = Link::kTcp;
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
    for (size_t b = a + 1; b < reports[a].details.size(); ++b) {
      if (const std::string& detail = reports[a].details[b]; !detail.empty())
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

std::vector<RankPlace> places_of(std::span<const RankFacts> facts) {
  std::vector<RankPlace> places;
  for (const RankFacts& rank : facts) places.push_back({rank.host, rank.no_verbs, rank.no_ucx});
  return places;
}

MadeLinks make_links(World& world, std::span<const RankFacts> facts, const LinkOptions& options) {
  const std::vector<RankPlace> places = places_of(facts);
  const Groups groups = share_memory(world, places, options);
  std::vector<LinkTable> tables(places.size());
  bool windowed = false;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (!is_member(options, rank)) continue;
    LinkTable& table = tables[static_cast<size_t>(rank)];
    table = table_of(world, facts, places, groups, options, rank);
    windowed = windowed || std::ranges::find(table.peers, Link::kVerbs, &LinkTable::Peer::link) != table.peers.end();
  }
  for (int rank = 0; rank < world.ranks(); ++rank) {
    if (!is_member(options, rank)) continue;
    const std::string& failure = groups.failures[static_cast<size_t>(rank)];
    const auto& group = groups.of[static_cast<size_t>(rank)];
    if (!failure.empty() && group.front() == rank)
      world.report(fmt::format("ranks {} share no memory and use slower links: {}", fmt::join(group, ", "), failure));
    tables[static_cast<size_t>(rank)].windowed = windowed;
    world.send_json(rank, MessageType::kConnect, tables[static_cast<size_t>(rank)]);
  }
  std::vector<LinkReport> reports(places.size());
  const auto messages =
      world.collect(MessageType::kConnected, "while the ranks were connecting", options.patience, options.members);
  for (size_t rank = 0; rank < places.size(); ++rank) {
    if (is_member(options, static_cast<int>(rank))) reports[rank] = from_json<LinkReport>(message_text(messages[rank]));
  }
  const std::vector<std::string> fallbacks = fallback_notes(reports);
  if (options.wish == Link::kVerbs && !fallbacks.empty())
    fail(ErrorKind::kLink, "--link verbs: {}: use --link auto", fallbacks[0]);
  for (const std::string& fallback : fallbacks) world.report(fallback);
  MadeLinks made{names_of(reports), notes_of(tables, facts, reports, fallbacks, options), {}};
  for (size_t a = 0; a < reports.size(); ++a) {
    for (size_t b = a + 1; b < reports[a].refusals.size(); ++b) {
      if (!reports[a].refusals[b].empty()) made.fallbacks.insert({static_cast<int>(a), static_cast<int>(b)});
    }
  }
  return made;
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
    for (size_t b = a + 1; b < reports[a].refusals.size(); ++b) {
      const std::string& refusal = reports[a].refusals[b];
      if (!refusal.empty()) notes.push_back(fmt::format("ranks {} and {} use tcp, not verbs: {}", a, b, refusal));
    }
  }
  return notes;
}

std::vector<LinkStart> link_starts(const World& world, const RemoteOptions& remote, const LinkStart& all) {
  std::vector<LinkStart> starts(static_cast<size_t>(world.ranks()), all);
  const std::string world_id = to_hex(make_world_id()), key = to_hex(remote.key ? *remote.key : make_secret_key());
  const std::string front_host = remote.meet.endpoint.host.empty() ? "127.0.0.1" : remote.meet.endpoint.host;
  for (int rank = 0; rank < world.ranks(); ++rank) {
    LinkStart& start = starts[static_cast<size_t>(rank)];
    start.rank = rank;
    start.ranks = world.ranks();
    start.world = world_id;
    // An operator's key is never sent to a rank that joined with it.
    if (world.is_local(rank) || !remote.key) start.key = key;
    if (world.host(rank).empty()) start.listen_host = front_host;
  }
  return starts;
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
