#include "gate/exchange.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/alignment.h"
#include "base/check.h"
#include "transport/tcp/tcp_queue_pair.h"

namespace coprime {
namespace {

constexpr uint32_t kScattered = 1u << 31;
constexpr uint32_t kLayerMask = 0xfffff;
// A rank that waits on both kinds of links sleeps on one of them at a time.
constexpr int64_t kMixedSleepUs = 500;
constexpr int64_t kPolledSleepUs = 50;  // beside a link that has no events

// Which gate, in one word that travels with the bytes.
uint32_t make_tag(const GateEntry& entry, bool scattered) {
  return (scattered ? kScattered : 0) | static_cast<uint32_t>(entry.kind) << 20 |
         (static_cast<uint32_t>(entry.layer + 1) & kLayerMask);
}

std::string tag_text(uint32_t tag) {
  const GateEntry entry = {.kind = static_cast<GateKind>((tag & ~kScattered) >> 20),
                           .layer = static_cast<int>(tag & kLayerMask) - 1};
  return fmt::format("{}{}", gate_text(entry), (tag & kScattered) != 0 ? ", in parts" : "");
}

// Calls visit(peer) for each bit.
template <class Visit>
void for_each_peer(uint32_t peers, Visit&& visit) {
  for (; peers != 0; peers &= peers - 1) visit(std::countr_zero(peers));
}

}  // namespace

Exchange::Exchange(WorldLinks links, GateSchedule schedule, std::shared_ptr<const ProgressPage> progress,
                   const ExchangeSettings& settings)
    : rank_(links.rank),
      ranks_(links.ranks),
      windowed_(links.windowed),
      epoch_(settings.epoch),
      schedule_(std::move(schedule)),
      slot_bytes_(largest_slot_bytes(schedule_)),
      slot_stride_(round_up(kHeadroom + slot_bytes_, kPageBytes)),
      watch_(std::move(progress), links.rank, settings.timeout_ms, settings.epoch),
      policy_(settings.wait) {
  COPRIME_CHECK(ranks_ >= 1 && ranks_ <= kMaxRanks && rank_ >= 0 && rank_ < ranks_, "rank {} of {}", rank_, ranks_);
  region_index_.fill(-1);
  if (links.region) {
    COPRIME_CHECK(static_cast<int>(links.region_ranks.size()) == links.region->ranks(), "{} ranks, a region of {}",
                  links.region_ranks.size(), links.region->ranks());
    COPRIME_CHECK(links.region->slot_bytes() >= slot_bytes_, "slots of {} bytes, {} are needed",
                  links.region->slot_bytes(), slot_bytes_);
    for (size_t index = 0; index < links.region_ranks.size(); ++index) {
      const int rank = links.region_ranks[index];
      region_index_[static_cast<size_t>(rank)] = static_cast<int>(index);
      if (rank != rank_) window_peers_ |= 1u << rank;
    }
    window_.emplace(std::move(links.region), region_index(rank_));
  } else {
    slots_ = Buffer(2 * slot_stride_);
  }
  for (int peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_ || (window_peers_ >> peer & 1) != 0) continue;
    PeerConnection& connection = links.peers.at(static_cast<size_t>(peer));
    if (!connection.socket && connection.pair == nullptr) continue;
    const std::span<std::byte> out_slots = window_ ? std::span(window_->slot(0).data(), 2 * window_->slot_bytes())
                                                   : std::span(slots_.data(), slots_.size());
    auto& link = peer_links_[static_cast<size_t>(peer)];
    if (connection.pair == nullptr) {
      link = make_stream_link(std::make_unique<TcpQueuePair>(std::move(connection.socket), epoch_), slot_bytes_,
                              out_slots);
    } else if (suits_stream_link(connection.pair->limits(), slot_bytes_)) {
      link = make_stream_link(std::move(connection.pair), slot_bytes_, out_slots);
    } else {
      link =
          make_window_link(std::move(connection.pair), SideChannel(std::move(connection.socket)), schedule_, out_slots);
    }
    link_peers_ |= 1u << peer;
  }
}

std::span<std::byte> Exchange::slot(uint64_t sequence) {
  if (window_) return window_->slot(sequence);
  return {slots_.data() + (sequence & 1) * slot_stride_ + kHeadroom, slot_bytes_};
}

void Exchange::begin_step(int rows, int next_rows) {
  throw_if_broken();
  COPRIME_CHECK(stage_ == Stage::kIdle, "a step begins inside a gate");
  for_each_peer(link_peers_, [&](int peer) { peer_link(peer).begin_step(rows, next_rows); });
}

std::span<std::byte> Exchange::out(size_t bytes) {
  throw_if_broken();
  COPRIME_CHECK(stage_ != Stage::kPublished, "out() between publish() and wait()");
  COPRIME_CHECK(bytes <= slot_bytes_, "{} bytes in a slot of {}", bytes, slot_bytes_);
  return slot(sequence_ + 1);
}

void Exchange::begin_gate(int entry, bool scattered, std::span<const size_t> incoming) {
  throw_if_broken();
  COPRIME_CHECK(stage_ == Stage::kIdle, "a gate begins before the last one is released");
  COPRIME_CHECK(entry >= 0 && entry < static_cast<int>(schedule_.size()), "gate {} of {}", entry, schedule_.size());
  COPRIME_CHECK(static_cast<int>(incoming.size()) == ranks_, "{} lengths for {} ranks", incoming.size(), ranks_);
  ++sequence_;
  stage_ = Stage::kPublished;
  entry_ = entry;
  tag_ = make_tag(gate(), scattered);
  scattered_ = scattered;
  std::ranges::copy(incoming, incoming_.begin());
}

void Exchange::publish(int entry, size_t bytes, std::span<const size_t> incoming) {
  COPRIME_CHECK(bytes <= slot_bytes_, "{} bytes in a slot of {}", bytes, slot_bytes_);
  begin_gate(entry, false, incoming);
  for (int peer = 0; peer < ranks_; ++peer) parts_[static_cast<size_t>(peer)] = {0, bytes};
  send();
}

void Exchange::scatter(int entry, std::span<const size_t> ends, std::span<const size_t> incoming) {
  COPRIME_CHECK(static_cast<int>(ends.size()) == ranks_, "{} ends for {} ranks", ends.size(), ranks_);
  begin_gate(entry, true, incoming);
  size_t begin = 0;
  for (size_t peer = 0; peer < ends.size(); ++peer) {
    COPRIME_CHECK(begin <= ends[peer] && ends[peer] <= slot_bytes_, "a part from {} to {}", begin, ends[peer]);
    parts_[peer] = {begin, ends[peer]};
    begin = ends[peer];
  }
  send();
}

void Exchange::send() {
  if (window_) {
    window_->header(sequence_) = {.bytes = part_of(rank_).end, .tag = tag_, .epoch = epoch_};
    if (scattered_) {
      for (int peer = 0; peer < ranks_; ++peer)
        window_->part_ends(sequence_)[static_cast<size_t>(peer)] = part_of(peer).end;
    }
    window_->publish(sequence_);
  }
  // Each rank begins with the peer above it, so that not all begin with rank 0.
  const uint32_t above = link_peers_ & ~((2u << rank_) - 1);
  for (const uint32_t peers : {above, link_peers_ & ~above}) {
    for_each_peer(peers, [&](int peer) {
      const Part part = part_of(peer);
      peer_link(peer).start({.sequence = sequence_,
                             .entry = entry_,
                             .tag = tag_,
                             .out = slot(sequence_).subspan(part.begin, part.end - part.begin),
                             .headroom = window_ || part.begin > 0 ? 0 : kHeadroom,
                             .incoming = incoming_[static_cast<size_t>(peer)]});
    });
  }
  watch_.advance();
}

std::span<const std::span<const std::byte>> Exchange::wait() {
  throw_if_broken();
  COPRIME_CHECK(stage_ == Stage::kPublished, "wait() without publish()");
  receive();
  const Part own = part_of(rank_);
  set_view(rank_, slot(sequence_).subspan(own.begin, own.end - own.begin));
  stage_ = Stage::kSeen;
  return {views_.data(), static_cast<size_t>(ranks_)};
}

void Exchange::receive() {
  uint32_t in_window = window_peers_, on_links = link_peers_;
  const auto ready = [&] {
    for (uint32_t rest = on_links; rest != 0; rest &= rest - 1) {
      const int peer = std::countr_zero(rest);
      if (poll_link(peer)) on_links &= ~(1u << peer);
    }
    for (; in_window != 0; in_window &= in_window - 1) {
      if (!window_->seen(region_index(std::countr_zero(in_window)), sequence_)) return false;
    }
    return on_links == 0;
  };
  bool slept = false;
  uint64_t moved = 0;
  const auto sleep_for_news = [&] {
    uint64_t moved_now = 0;
    for_each_peer(link_peers_, [&](int peer) { moved_now += peer_link(peer).moved(); });
    if (std::exchange(moved, moved_now) != moved_now) watch_.advance();
    const uint32_t unseen = not_yet_seen(in_window);
    if (!std::exchange(slept, true)) {
      watch_.begin(sequence_, unseen | on_links);
    } else if (std::optional<Verdict> verdict = watch_.check(unseen | on_links)) {
      give_up(*verdict);
    }
    for_each_peer(on_links, [&](int peer) { peer_link(peer).peer_closed(); });
    sleep(unseen, on_links);
  };
  wait_until(policy_, ready, sleep_for_news);
  if (slept) watch_.end();
  watch_.advance();
  for_each_peer(window_peers_, [&](int peer) { view_window_peer(peer); });
  for_each_peer(link_peers_, [&](int peer) {
    const PeerLink::Arrival arrival = peer_link(peer).arrival();
    check_tag(peer, arrival.tag);
    check_bytes(peer, arrival.bytes.size());
    set_view(peer, arrival.bytes);
  });
}

bool Exchange::poll_link(int peer) {
  PeerLink& link = peer_link(peer);
  if (link.done()) return true;
  if (!link.failure().empty()) [[unlikely]] {
    // It may have closed because it gave up on somebody else.
    if (std::optional<Verdict> verdict = watch_.others_verdict()) give_up(*verdict);
    give_up({peer, fmt::format("lost rank {}", peer),
             fmt::format("rank {} {}: see what it reports, and start the ranks again", peer, link.failure())});
  }
  return false;
}

uint32_t Exchange::not_yet_seen(uint32_t missing) const {
  uint32_t unseen = 0;
  for_each_peer(missing, [&](int peer) {
    if (!window_->seen(region_index(peer), sequence_)) unseen |= 1u << peer;
  });
  return unseen;
}

void Exchange::sleep(uint32_t unseen, uint32_t on_links) {
  int64_t longest_us = unseen != 0 && on_links != 0 ? kMixedSleepUs : watch_.sleep_us();
  if (on_links == 0) return window_->sleep(sequence_, longest_us);
  std::array<pollfd, 2 * kMaxRanks> wanted;
  size_t count = 0;
  for_each_peer(on_links, [&](int peer) {
    if (!peer_link(peer).can_sleep()) longest_us = std::min(longest_us, kPolledSleepUs);
    count += static_cast<size_t>(peer_link(peer).wait_on(std::span(wanted).subspan(count, 2)));
  });
  const timespec timeout = {.tv_sec = longest_us / 1'000'000, .tv_nsec = longest_us % 1'000'000 * 1000};
  ::ppoll(wanted.data(), count, &timeout, nullptr);  // on a signal or an error the caller looks again
}

void Exchange::view_window_peer(int peer) {
  const SlotHeader header = window_->peer_header(region_index(peer), sequence_);
  if (header.epoch != epoch_) {
    give_up({peer, "stopped",
             fmt::format("rank {} is in epoch {}, rank {} in epoch {}", peer, header.epoch, rank_, epoch_)});
  }
  check_tag(peer, header.tag);
  uint64_t begin = 0, end = header.bytes;
  if (scattered_) {
    const std::span<const uint64_t> ends = window_->peer_part_ends(region_index(peer), sequence_);
    begin = rank_ == 0 ? 0 : ends[static_cast<size_t>(rank_) - 1];
    end = ends[static_cast<size_t>(rank_)];
  }
  if (begin > end || end > window_->slot_bytes()) {
    give_up({peer, "stopped",
             fmt::format("rank {} published bytes {} to {} of a slot of {}", peer, begin, end, window_->slot_bytes())});
  }
  check_bytes(peer, end - begin);
  set_view(peer, {window_->peer_slot(region_index(peer), sequence_) + begin, end - begin});
}

void Exchange::release() {
  throw_if_broken();
  COPRIME_CHECK(stage_ == Stage::kSeen, "release() without wait()");
  stage_ = Stage::kIdle;
  for_each_peer(link_peers_, [&](int peer) { peer_link(peer).released(); });
}

void Exchange::give_up(const Verdict& found) {
  const Verdict verdict = watch_.settle(found);
  if (window_) window_->ring();
  const auto& blamed = peer_links_[static_cast<size_t>(verdict.blamed)];
  std::string state = blamed == nullptr ? std::string() : blamed->waiting_for();
  if (!state.empty()) state = fmt::format(" ({})", state);
  const std::string over = verdict.blamed == rank_ ? std::string() : fmt::format(" over {}", link(verdict.blamed));
  error_.emplace(ErrorKind::kLink, fmt::format("rank {} {} at {} (sequence {}){}: {}{}", rank_, verdict.what,
                                               gate_text(gate()), sequence_, over, verdict.why, state));
  throw *error_;
}

void Exchange::abandon(const Error& error) {
  if (!error_) {
    watch_.settle({.blamed = rank_});
    if (window_) window_->ring();
    error_.emplace(error);
  }
  throw *error_;
}

void Exchange::check_tag(int peer, uint32_t peer_tag) {
  if (peer_tag == tag_) return;
  give_up({peer, "stopped",
           fmt::format("gate order broke: rank {} is at {}, rank {} at {}: all ranks must run the same program", peer,
                       tag_text(peer_tag), rank_, tag_text(tag_))});
}

void Exchange::check_bytes(int peer, size_t bytes) {
  const size_t expected = incoming_[static_cast<size_t>(peer)];
  if (bytes == expected) return;
  give_up(
      {peer, "stopped",
       fmt::format("rank {} sent {} bytes where {} come: all ranks must run the same step", peer, bytes, expected)});
}

const char* Exchange::link(int peer) const {
  if ((window_peers_ >> peer & 1) != 0) return "shm";
  const auto& link = peer_links_[static_cast<size_t>(peer)];
  return link == nullptr ? "none" : link->name();
}

uint64_t Exchange::rearms() const {
  uint64_t count = 0;
  for_each_peer(link_peers_, [&](int peer) { count += peer_links_[static_cast<size_t>(peer)]->rearms(); });
  return count;
}

}  // namespace coprime
