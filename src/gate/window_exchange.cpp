// Gates over a shared window: publishing moves nothing, the peers read the slot where it lies.
#include <bit>

#include "base/check.h"
#include "gate/exchange_state.h"
#include "gate/exchanges.h"
#include "transport/shm/window.h"

namespace coprime {
namespace {

class WindowExchange final : public ExchangeState {
 public:
  WindowExchange(std::shared_ptr<const ShmRegion> region, int rank, std::shared_ptr<const ProgressPage> progress,
                 const ExchangeSettings& settings)
      : ExchangeState(rank, region->ranks(), region->slot_bytes(), settings.epoch),
        window_(std::move(region), rank),
        watch_(std::move(progress), rank, settings.timeout_ms, settings.epoch),
        policy_(settings.wait) {}

  const char* link() const override { return "shm"; }

 protected:
  std::span<std::byte> slot(uint64_t sequence) override { return window_.slot(sequence); }

  void send() override {
    window_.header(sequence()) = {.bytes = part_of(rank()).end, .tag = tag(), .epoch = epoch()};
    if (scattered()) {
      for (int peer = 0; peer < ranks(); ++peer)
        window_.part_ends(sequence())[static_cast<size_t>(peer)] = part_of(peer).end;
    }
    window_.publish(sequence());
    watch_.advance();
  }

  void receive() override {
    uint32_t missing = all_peers();
    const auto ready = [&] {
      for (; missing != 0; missing &= missing - 1) {
        if (!window_.seen(std::countr_zero(missing), sequence())) return false;
      }
      return true;
    };
    bool slept = false;
    const auto sleep = [&] {
      const uint32_t absent = still_absent(missing);
      if (!std::exchange(slept, true)) {
        watch_.begin(absent);
      } else if (std::optional<Verdict> verdict = watch_.check(absent)) {
        give_up(*verdict);
      }
      window_.sleep(sequence(), watch_.sleep_us());
    };
    wait_until(policy_, ready, sleep);
    watch_.advance();
    for (uint32_t rest = all_peers(); rest != 0; rest &= rest - 1) view_peer(std::countr_zero(rest));
  }

  Verdict settle(const Verdict& found) override {
    const Verdict verdict = watch_.settle(found);
    window_.ring();
    return verdict;
  }

 private:
  uint32_t still_absent(uint32_t missing) const {
    uint32_t absent = 0;
    for (uint32_t rest = missing; rest != 0; rest &= rest - 1) {
      const int peer = std::countr_zero(rest);
      if (!window_.seen(peer, sequence())) absent |= 1u << peer;
    }
    return absent;
  }

  void view_peer(int peer) {
    const SlotHeader& header = window_.peer_header(peer, sequence());
    if (header.epoch != epoch()) {
      give_up({peer, "stopped",
               fmt::format("rank {} is in epoch {}, rank {} in epoch {}", peer, header.epoch, rank(), epoch())});
    }
    check_tag(peer, header.tag);
    uint64_t begin = 0, end = header.bytes;
    if (scattered()) {
      const std::span<const uint64_t> ends = window_.peer_part_ends(peer, sequence());
      begin = rank() == 0 ? 0 : ends[static_cast<size_t>(rank()) - 1];
      end = ends[static_cast<size_t>(rank())];
    }
    if (begin > end || end > window_.slot_bytes()) {
      give_up(
          {peer, "stopped",
           fmt::format("rank {} published bytes {} to {} of a slot of {}", peer, begin, end, window_.slot_bytes())});
    }
    set_view(peer, {window_.peer_slot(peer, sequence()) + begin, end - begin});
  }

  Window window_;
  PeerWatch watch_;
  WaitPolicy policy_;
};

}  // namespace

std::unique_ptr<Exchange> make_window_exchange(std::shared_ptr<const ShmRegion> region, int rank,
                                               std::shared_ptr<const ProgressPage> progress,
                                               const ExchangeSettings& settings) {
  COPRIME_CHECK(region->ranks() == progress->ranks(), "{} ranks in the window, {} on the progress page",
                region->ranks(), progress->ranks());
  return std::make_unique<WindowExchange>(std::move(region), rank, std::move(progress), settings);
}

}  // namespace coprime
