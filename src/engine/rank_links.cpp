#include "engine/rank_links.h"

#include <algorithm>

#include "base/error.h"
#include "base/hex.h"
#include "transport/authenticated_queue_pair.h"
#include "transport/shm/region_handoff.h"
#include "transport/tcp/tcp_queue_pair.h"
#include "transport/wait_policy.h"

namespace coprime {
namespace {

constexpr int kShareTimeoutMs = 5'000;
constexpr int kConnectTimeoutMs = 10'000;

WorldId world_id_from_hex(const std::string& text) {
  WorldId id{};
  if (!from_hex(text, id)) fail(ErrorKind::kInternal, "\"{}\" is no world's id", text);
  return id;
}

VerbsOptions verbs_options(const LinkStart& start, const RankPlacement& placement) {
  const VerbsChoice& choice = placement.verbs.made() ? placement.verbs : start.verbs;
  return {.device = choice.device, .gid_index = choice.gid_index, .gate_timeout_ms = start.gate_timeout_ms};
}

SecretKey world_key(const LinkStart& start, const RankPlacement& placement) {
  if (placement.key) return *placement.key;
  return secret_key_from_hex(start.key, "the front's message");
}

}  // namespace

RankLinks::RankLinks(const LinkStart& start, const RankPlacement& placement)
    : start_(start),
      // Ranks of the front's host listen where the front does, and nowhere else.
      front_host_(start.listen_host.empty() ? placement.front_host : start.listen_host),
      threads_(placement.threads != 0 ? placement.threads : start.threads),
      me_{.rank = start.rank,
          .ranks = start.ranks,
          .world = world_id_from_hex(start.world),
          .key = world_key(start, placement)},
      verbs_options_(verbs_options(start, placement)) {
  if (start.ranks == 1) return;
  const auto port = static_cast<uint16_t>(start.port == 0 ? 0 : start.port + start.rank);
  const std::string& host = start.listen_host.empty() ? placement.own_host : start.listen_host;
  // Who is let in proves that it holds the world's key, whoever made that.
  listener_ = Listener::open({host, port}, true, "choose another --port");
  try {
    verbs_ = open_verbs_device(verbs_options_);
  } catch (const Error& error) {
    // No device is no error, unless somebody named it: the world has other links.
    no_verbs_ = error.what();
    if (!verbs_options_.device.empty())
      fail(ErrorKind::kLink, "--verbs-device {}: {}; coprime rank --verbs-device gives a rank one of its own",
           verbs_options_.device, error.what());
  }
  try {
    if (start.ucx) ucx_ = open_ucx();
  } catch (const Error& error) {
    no_ucx_ = error.what();
  }
}

int RankLinks::threads(const RankGroup& group) const {
  return threads_ != 0 ? threads_ : std::max(1, host_.usable() / std::max(group.ranks_on_host, 1));
}

CorePlan RankLinks::cores(const RankGroup& group) const {
  if (threads_ != start_.threads) return {.why_not = "its host has given it threads of its own"};  // others know not
  return plan_cores(host_, group.ranks_on_host, group.index_on_host, threads(group));
}

std::vector<Endpoint> RankLinks::endpoints() const {
  std::vector<Endpoint> result;
  for (const LinkTable::Peer& peer : table_.peers) {
    result.push_back({peer.host.empty() ? front_host_ : peer.host, static_cast<uint16_t>(peer.port)});
  }
  return result;
}

uint32_t RankLinks::connected() const {
  uint32_t ranks = 0;
  for (int peer = 0; peer < me_.ranks; ++peer) {
    const Link link = table_.peers[static_cast<size_t>(peer)].link;
    if (link == Link::kTcp || link == Link::kVerbs || link == Link::kUcx) ranks |= 1u << peer;
  }
  return ranks;
}

bool RankLinks::shares_memory() const {
  return std::ranges::find(table_.peers, Link::kShm, &LinkTable::Peer::link) != table_.peers.end();
}

// Memory of one host needs no proof; whatever crosses a wire has one with --wire-auth. A device that does not carry is
// no end of the world: both ranks learn of it over the connection that they have, and use that.
PeerConnection RankLinks::connect(int peer, Link link, MeshConnection mesh, size_t slot_bytes) {
  PeerConnection connection{.socket = std::move(mesh.socket)};
  if (link == Link::kVerbs) {
    VerbsLink made = connect_verbs(verbs_, verbs_options_, connection.socket.get(), me_.rank, peer, kConnectTimeoutMs);
    connection.pair = std::move(made.pair);
    report_.details[static_cast<size_t>(peer)] = std::move(made.summary);
    report_.refusals[static_cast<size_t>(peer)] = std::move(made.refusal);
  }
  if (link == Link::kUcx)
    connection.pair = connect_ucx(ucx_, std::move(connection.socket), me_.epoch, me_.rank, peer, kConnectTimeoutMs);
  if (!start_.wire_auth) return connection;
  if (!connection.pair) connection.pair = std::make_unique<TcpQueuePair>(std::move(connection.socket), me_.epoch);
  const AuthenticatedQueuePair::Session session{mesh.session_key->bytes(), me_.epoch, me_.rank, peer};
  connection.pair = std::make_unique<AuthenticatedQueuePair>(std::move(connection.pair), session, slot_bytes);
  return connection;
}

std::unique_ptr<Exchange> RankLinks::make(FrontLine& front, const RankGroup& group, const GateSchedule& schedule,
                                          const std::shared_ptr<const ProgressPage>& progress) {
  group_ = group;
  me_.epoch = group.epoch;
  const size_t slot_bytes = largest_slot_bytes(schedule);
  SharedRegion shared;
  if (!group.ranks.empty()) shared = share_region(me_, group.ranks, slot_bytes, kShareTimeoutMs);
  front.send_json(MessageType::kShared, GroupResult{shared.region != nullptr, shared.failure});

  table_ = from_json<LinkTable>(message_text(front.expect(MessageType::kConnect)));
  if (static_cast<int>(table_.peers.size()) != me_.ranks)
    fail(ErrorKind::kInternal, "links to {} ranks of {}", table_.peers.size(), me_.ranks);
  WorldLinks links{.rank = me_.rank, .ranks = me_.ranks, .windowed = table_.windowed};
  links.peers.resize(table_.peers.size());
  if (shares_memory()) {
    links.region = shared.region;
    links.region_ranks = group.ranks;
  }
  report_ = {.details = std::vector<std::string>(links.peers.size()),
             .refusals = std::vector<std::string>(links.peers.size())};
  if (const uint32_t peers = connected(); peers != 0) {
    auto mesh = connect_mesh(*listener_, endpoints(), peers, me_, kConnectTimeoutMs, [&] { front.look(); });
    for (int peer = 0; peer < me_.ranks; ++peer) {
      const auto at = static_cast<size_t>(peer);
      if ((peers >> peer & 1) != 0)
        links.peers[at] = connect(peer, table_.peers[at].link, std::move(mesh[at]), slot_bytes);
      progress->advance(me_.rank);  // a device that does not carry takes its time to say so, for each peer
    }
  }
  const ExchangeSettings settings{.wait = choose_wait_policy(host_.usable(), group.ranks_on_host, threads(group)),
                                  .timeout_ms = start_.gate_timeout_ms,
                                  .epoch = group.epoch};
  return std::make_unique<Exchange>(std::move(links), schedule, progress, settings);
}

void RankLinks::tell(FrontLine& front, const Exchange& exchange) const {
  LinkReport report = report_;
  for (int peer = 0; peer < me_.ranks; ++peer) report.names.emplace_back(exchange.link(peer));
  front.send_json(MessageType::kConnected, report);
}

std::optional<RankLinks::BareParts> RankLinks::make_bare(FrontLine& front, size_t slot_bytes) const {
  if (table_.windowed) return std::nullopt;
  Membership me = me_;
  ++me.epoch;
  BareParts parts;
  parts.sockets.resize(table_.peers.size());
  if (shares_memory()) {
    SharedRegion shared = share_region(me, group_.ranks, slot_bytes, kShareTimeoutMs);
    if (!shared.region) fail(ErrorKind::kLink, "no second window for the floor: {}", shared.failure);
    parts.region = std::move(shared.region);
    parts.region_ranks = group_.ranks;
  }
  if (const uint32_t peers = connected(); peers != 0) {
    auto mesh = connect_mesh(*listener_, endpoints(), peers, me, kConnectTimeoutMs, [&] { front.look(); });
    for (size_t peer = 0; peer < mesh.size(); ++peer) parts.sockets[peer] = std::move(mesh[peer].socket);
  }
  return parts;
}

}  // namespace coprime
