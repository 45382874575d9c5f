// Gates over two-sided queue pairs, one to each peer, whatever provides them.
//
// Two receives are posted to each peer at any time, since a peer may lead by one gate: sequence s lands in the slot of
// its parity. A slot is posted again when the views of its sequence are released. The outgoing slots alternate
// likewise; the slot of s is written again for s + 2, and wait() for s returns only when all sends of s are complete.
#pragma once

#include <poll.h>

#include <array>
#include <memory>
#include <vector>

#include "gate/exchange_state.h"
#include "gate/exchanges.h"
#include "tensor/buffer.h"
#include "transport/queue_pair.h"

namespace coprime {

class QueuePairExchange final : public ExchangeState {
 public:
  // pairs[r] leads to rank r; this rank's own is null. `link` is the name in errors.
  QueuePairExchange(std::vector<std::unique_ptr<QueuePair>> pairs, int rank, size_t max_bytes, const char* link,
                    std::shared_ptr<const ProgressPage> progress, const ExchangeSettings& settings);
  const char* link() const override { return link_; }

 protected:
  std::span<std::byte> slot(uint64_t sequence) override;
  void send() override;
  void receive() override;
  void recycle() override;
  Verdict settle(const Verdict& found) override { return watch_.settle(found); }

 private:
  struct Arrival {
    size_t bytes = 0;
    uint32_t tag = 0;
  };
  struct Peer {
    std::unique_ptr<QueuePair> pair;
    uint64_t sent = 0, received = 0;  // the last complete sequence of each direction
    std::array<Arrival, 2> arrivals;  // by parity
  };

  bool pump(int peer);  // whether this sequence is complete in both directions
  void sleep(uint32_t pending);
  std::byte* receive_slot(int peer, uint64_t sequence);
  void post_receive(int peer, uint64_t sequence);
  Peer& peer_at(int peer) { return peers_[static_cast<size_t>(peer)]; }

  const char* link_;
  size_t slot_bytes_, stride_;
  std::array<Peer, kMaxRanks> peers_;
  Buffer slots_;  // [rank][parity]: the outgoing slots at this rank's place, the peers' at theirs
  PeerWatch watch_;
  WaitPolicy policy_;
};

}  // namespace coprime
