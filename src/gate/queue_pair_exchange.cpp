#include "gate/queue_pair_exchange.h"

#include <bit>
#include <cerrno>

#include "base/check.h"
#include "transport/tcp/tcp_queue_pair.h"

namespace coprime {
namespace {
constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }
}  // namespace

QueuePairExchange::QueuePairExchange(std::vector<std::unique_ptr<QueuePair>> pairs, int rank, size_t max_bytes,
                                     const char* link, std::shared_ptr<const ProgressPage> progress,
                                     const ExchangeSettings& settings)
    : ExchangeState(rank, static_cast<int>(pairs.size()), max_bytes, settings.epoch),
      link_(link),
      slot_bytes_(max_bytes),
      stride_(round_up(max_bytes, 4096)),
      slots_(2 * pairs.size() * stride_),
      watch_(std::move(progress), rank, settings.timeout_ms, settings.epoch),
      policy_(settings.wait) {
  for (int peer = 0; peer < ranks(); ++peer) {
    peer_at(peer).pair = std::move(pairs[static_cast<size_t>(peer)]);
    if (peer == rank) continue;
    COPRIME_CHECK(peer_at(peer).pair != nullptr, "no pair to rank {}", peer);
    COPRIME_CHECK(max_bytes <= peer_at(peer).pair->limits().max_message_bytes);
    post_receive(peer, 1);
    post_receive(peer, 2);
  }
}

std::byte* QueuePairExchange::receive_slot(int peer, uint64_t sequence) {
  return slots_.data() + (2 * static_cast<size_t>(peer) + (sequence & 1)) * stride_;
}

std::span<std::byte> QueuePairExchange::slot(uint64_t sequence) {
  return {receive_slot(rank(), sequence), slot_bytes_};
}

void QueuePairExchange::post_receive(int peer, uint64_t sequence) {
  const WorkRequest request = {.id = sequence, .data = receive_slot(peer, sequence), .bytes = slot_bytes_};
  peer_at(peer).pair->post_recv({&request, 1});
}

// Each rank begins with the peer above it, so that not all begin with rank 0.
void QueuePairExchange::send() {
  for (int step = 1; step < ranks(); ++step) {
    const int peer = (rank() + step) % ranks();
    const Part part = part_of(peer);
    const WorkRequest request = {
        .id = sequence(), .data = slot(sequence()).data() + part.begin, .bytes = part.end - part.begin, .tag = tag()};
    peer_at(peer).pair->post_send({&request, 1});
  }
  watch_.advance();
}

bool QueuePairExchange::pump(int index) {
  Peer& peer = peer_at(index);
  std::array<Completion, 4> completions;
  const int count = peer.pair->poll(completions);
  for (int i = 0; i < count; ++i) {
    const Completion& completion = completions[static_cast<size_t>(i)];
    if (completion.kind == Completion::Kind::kSend) {
      peer.sent = completion.id;
    } else {
      peer.received = completion.id;
      peer.arrivals[completion.id & 1] = {completion.bytes, completion.tag};
    }
  }
  if (peer.sent >= sequence() && peer.received >= sequence()) return true;
  if (!peer.pair->failure().empty()) [[unlikely]] {
    // It may have closed because it gave up on somebody else.
    if (std::optional<Verdict> verdict = watch_.others_verdict()) give_up(*verdict);
    give_up({index, fmt::format("lost rank {}", index),
             fmt::format("rank {} {}: see what it reports, and start the ranks again", index, peer.pair->failure())});
  }
  return false;
}

void QueuePairExchange::receive() {
  uint32_t pending = all_peers();
  const auto ready = [&] {
    for (uint32_t rest = pending; rest != 0; rest &= rest - 1) {
      const int peer = std::countr_zero(rest);
      if (pump(peer)) pending &= ~(1u << peer);
    }
    return pending == 0;
  };
  bool slept = false;
  const auto sleep_for_news = [&] {
    if (!std::exchange(slept, true)) {
      watch_.begin(pending);
    } else if (std::optional<Verdict> verdict = watch_.check(pending)) {
      give_up(*verdict);
    }
    sleep(pending);
  };
  wait_until(policy_, ready, sleep_for_news);
  watch_.advance();
  for (uint32_t rest = all_peers(); rest != 0; rest &= rest - 1) {
    const int peer = std::countr_zero(rest);
    const Arrival& arrival = peer_at(peer).arrivals[sequence() & 1];
    check_tag(peer, arrival.tag);
    set_view(peer, {receive_slot(peer, sequence()), arrival.bytes});
  }
}

void QueuePairExchange::sleep(uint32_t pending) {
  std::array<pollfd, kMaxRanks> wanted;
  nfds_t count = 0;
  for (uint32_t rest = pending; rest != 0; rest &= rest - 1)
    wanted[count++] = peer_at(std::countr_zero(rest)).pair->wait_on();
  // While bytes move this rank is no dead one. On a signal or an error the caller looks again.
  if (::poll(wanted.data(), count, static_cast<int>(watch_.sleep_us() / 1000)) > 0) watch_.advance();
}

void QueuePairExchange::recycle() {
  for (uint32_t rest = all_peers(); rest != 0; rest &= rest - 1) post_receive(std::countr_zero(rest), sequence() + 2);
}

std::unique_ptr<Exchange> make_tcp_exchange(std::vector<UniqueFd> mesh, int rank, size_t max_bytes,
                                            std::shared_ptr<const ProgressPage> progress,
                                            const ExchangeSettings& settings) {
  COPRIME_CHECK(static_cast<int>(mesh.size()) == progress->ranks(), "{} connections, {} ranks on the progress page",
                mesh.size(), progress->ranks());
  std::vector<std::unique_ptr<QueuePair>> pairs(mesh.size());
  for (size_t peer = 0; peer < mesh.size(); ++peer) {
    if (static_cast<int>(peer) == rank) continue;
    pairs[peer] = std::make_unique<TcpQueuePair>(std::move(mesh[peer]), settings.epoch);
  }
  return std::make_unique<QueuePairExchange>(std::move(pairs), rank, max_bytes, "tcp", std::move(progress), settings);
}

}  // namespace coprime
