#include "transport/mesh.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "transport/door.h"
#include "transport/socket.h"

namespace coprime {
namespace {

constexpr int64_t kRetryUs = 100'000, kLookUs = 20'000;

// What a dialling rank says about itself, little-endian; the answer to it is empty.
struct Claim {
  WorldId world;
  uint32_t epoch, ranks, from, to;
};
static_assert(sizeof(Claim) == 32);

// One rank that this one dials.
struct Call {
  int peer = 0;
  std::optional<Dial> dial;
  std::optional<Introduction> introduction;
  int64_t again_us = 0;  // when to dial again, if neither is under way
};

class Mesh {
 public:
  Mesh(const Listener& listener, std::span<const Endpoint> endpoints, uint32_t peers, const Membership& me)
      : endpoints_(endpoints),
        peers_(peers & ~(1u << me.rank)),
        me_(me),
        key_(me.key.derive("coprime mesh", me.world)),
        door_(listener.fd(), key_),
        connections_(endpoints.size()),
        reasons_(endpoints.size()) {
    for (int peer = 0; peer < me.rank; ++peer) {
      if (is_peer(peer)) calls_.push_back({.peer = peer, .dial = {}, .introduction = {}});
    }
  }

  std::vector<MeshConnection> connect(int64_t deadline_us, const std::function<void()>& look) {
    while (true) {
      look();
      for (Call& call : calls_) advance(call);
      std::erase_if(calls_, [&](const Call& call) { return is_connected(call.peer); });
      let_in();
      if (missing_text().empty()) return std::move(connections_);
      if (now_us() >= deadline_us) late();
      wait(deadline_us);
    }
  }

 private:
  bool is_peer(int rank) const { return (peers_ >> rank & 1) != 0; }
  bool is_connected(int rank) const { return static_cast<bool>(connections_[static_cast<size_t>(rank)].socket); }
  std::string& reason(int rank) { return reasons_[static_cast<size_t>(rank)]; }
  std::string place(int rank) const {
    return fmt::format("rank {} at {}", rank, endpoints_[static_cast<size_t>(rank)].text());
  }

  // "rank 2" or "ranks 2, 3"; empty when all are there.
  std::string missing_text() const {
    std::string names;
    int count = 0;
    for (int peer = 0; peer < me_.ranks; ++peer) {
      if (is_peer(peer) && !is_connected(peer)) names += fmt::format("{}{}", count++ == 0 ? "" : ", ", peer);
    }
    return count == 0 ? names : fmt::format("rank{} {}", count == 1 ? "" : "s", names);
  }

  [[noreturn]] void late() const {
    std::string why;
    for (size_t peer = 0; peer < reasons_.size(); ++peer) {
      if (!reasons_[peer].empty() && !is_connected(static_cast<int>(peer))) why += fmt::format("; {}", reasons_[peer]);
    }
    for (const std::string& refusal : refusals_) why += fmt::format("; refused: {}", refusal);
    fail(ErrorKind::kLink,
         "rank {} is not connected to {} within the time-out{}: see what they report, and start the world again",
         me_.rank, missing_text(), why);
  }

  void retry(Call& call, std::string why) {
    reason(call.peer) = std::move(why);
    call.dial.reset();
    call.introduction.reset();
    call.again_us = now_us() + kRetryUs;
  }

  void advance(Call& call) {
    if (!call.dial && !call.introduction) {
      if (now_us() < call.again_us) return;
      call.dial.emplace(resolve(endpoints_[static_cast<size_t>(call.peer)]), Traffic::kData);
    }
    if (call.dial) advance_dial(call);
    if (call.introduction) advance_introduction(call);
  }

  void advance_dial(Call& call) {
    switch (call.dial->advance()) {
      case Dial::State::kConnecting:
        return;
      case Dial::State::kConnected: {
        const Claim claim = {me_.world, me_.epoch, static_cast<uint32_t>(me_.ranks), static_cast<uint32_t>(me_.rank),
                             static_cast<uint32_t>(call.peer)};
        call.introduction.emplace(call.dial->take(), key_, std::as_bytes(std::span(&claim, 1)));
        call.dial.reset();
        return;
      }
      case Dial::State::kFailed:
        break;
    }
    const std::string why = errno_text(call.dial->error());
    if (call.dial->error() == ECONNREFUSED) {  // it listened when the table was made
      fail(ErrorKind::kLink, "rank {} cannot connect to {}: {}: see what rank {} reports", me_.rank, place(call.peer),
           why, call.peer);
    }
    retry(call, fmt::format("{}: {}", place(call.peer), why));
  }

  void advance_introduction(Call& call) {
    switch (call.introduction->advance()) {
      case Handshake::State::kDone: {
        Authenticated arrival = call.introduction->take();
        return keep(call.peer, arrival);
      }
      case Handshake::State::kFailed: {
        std::string why = fmt::format("{} {}", place(call.peer), call.introduction->failure());
        if (call.introduction->try_again()) return retry(call, std::move(why));
        fail(ErrorKind::kLink, "rank {} is not connected: {}", me_.rank, why);
      }
      default:
        return;
    }
  }

  void keep(int peer, Authenticated& arrival) {
    connections_[static_cast<size_t>(peer)] = {std::move(arrival.socket), arrival.session_key};
  }

  void let_in() {
    uint32_t chosen = 0;  // in this round
    const auto decide = [&](std::span<const std::byte> payload, const std::string&) {
      Claim claim;
      if (payload.size() != sizeof claim) return Admission::refusal("this is a port for the ranks of a world");
      std::memcpy(&claim, payload.data(), sizeof claim);
      Admission admission = judge(claim);
      if (admission.admitted && (chosen >> claim.from & 1) != 0) admission = duplicate(claim.from);
      if (admission.admitted) chosen |= 1u << claim.from;
      return admission;
    };
    for (Authenticated& arrival : door_.serve(decide)) {
      Claim claim;
      std::memcpy(&claim, arrival.payload.data(), sizeof claim);
      keep(static_cast<int>(claim.from), arrival);
    }
    for (std::string& refusal : door_.take_refusals()) {
      if (refusals_.size() < kMaxRefusals) refusals_.push_back(std::move(refusal));
    }
  }

  Admission duplicate(uint32_t rank) const {
    return Admission::refusal(fmt::format("there is a rank {} already: give every process a rank of its own", rank));
  }

  Admission judge(const Claim& claim) const {
    const auto rank = static_cast<uint32_t>(me_.rank), ranks = static_cast<uint32_t>(me_.ranks);
    if (claim.world != me_.world) return Admission::refusal("this is a rank of another world: choose another port");
    if (claim.ranks != ranks) {
      return Admission::refusal(fmt::format("the world has {} ranks here, {} there", ranks, claim.ranks));
    }
    if (claim.from >= ranks) {
      return Admission::refusal(fmt::format("there is no rank {} in a world of {}", claim.from, ranks));
    }
    if (claim.to != rank) return Admission::refusal(fmt::format("this is rank {}, not rank {}", rank, claim.to));
    if (claim.epoch != me_.epoch) {
      return Admission::refusal(fmt::format("epoch {} is here, {} there", me_.epoch, claim.epoch), true);
    }
    if (claim.from <= rank || !is_peer(static_cast<int>(claim.from))) {
      return Admission::refusal(fmt::format("rank {} does not wait for rank {}", rank, claim.from));
    }
    const MeshConnection& earlier = connections_[claim.from];
    if (earlier.socket && !is_closed(earlier.socket.get())) return duplicate(claim.from);
    return Admission::welcome({});
  }

  void wait(int64_t deadline_us) const {
    std::vector<pollfd> wanted;
    door_.append_to(wanted);
    int64_t until_us = std::min(deadline_us, now_us() + kLookUs);
    if (door_.deadline_us() >= 0) until_us = std::min(until_us, door_.deadline_us());
    for (const Call& call : calls_) {
      if (call.dial) {
        wanted.push_back({.fd = call.dial->fd(), .events = POLLOUT, .revents = 0});
      } else if (call.introduction) {
        wanted.push_back(call.introduction->wait_on());
      } else {
        until_us = std::min(until_us, call.again_us);
      }
    }
    if (::poll(wanted.data(), wanted.size(), poll_timeout_ms(until_us)) < 0 && errno != EINTR) {
      fail(ErrorKind::kLink, "poll: {}", errno_text(errno));
    }
  }

  static constexpr size_t kMaxRefusals = 4;

  std::span<const Endpoint> endpoints_;
  uint32_t peers_;
  const Membership& me_;
  SecretKey key_;
  Door door_;
  std::vector<MeshConnection> connections_;
  std::vector<std::string> reasons_;  // why a rank that was dialled is not connected yet
  std::vector<std::string> refusals_;
  std::vector<Call> calls_;
};

}  // namespace

WorldId make_world_id() {
  WorldId id;
  fill_random(id);
  return id;
}

std::vector<MeshConnection> connect_mesh(const Listener& listener, std::span<const Endpoint> endpoints, uint32_t peers,
                                         const Membership& me, int timeout_ms, const std::function<void()>& look) {
  COPRIME_CHECK(me.ranks >= 1 && me.ranks <= kMaxRanks && me.rank >= 0 && me.rank < me.ranks &&
                    endpoints.size() == static_cast<size_t>(me.ranks) && peers >> me.ranks == 0,
                "rank {} of {}, {} endpoints, peers {:#x}", me.rank, me.ranks, endpoints.size(), peers);
  return Mesh(listener, endpoints, peers, me).connect(now_us() + int64_t{timeout_ms} * 1000, look);
}

}  // namespace coprime
