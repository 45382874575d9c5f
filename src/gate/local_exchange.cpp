// The exchange of a world of one: its own contribution is all there is.
#include "gate/exchange_state.h"
#include "gate/exchanges.h"
#include "tensor/buffer.h"

namespace coprime {
namespace {

class LocalExchange final : public ExchangeState {
 public:
  explicit LocalExchange(size_t max_bytes)
      : ExchangeState(0, 1, max_bytes, 0), slot_bytes_(max_bytes), slots_(2 * stride()) {}
  const char* link() const override { return "none"; }

 protected:
  std::span<std::byte> slot(uint64_t sequence) override {
    return {slots_.data() + (sequence & 1) * stride(), slot_bytes_};
  }
  void send() override {}
  void receive() override {}

 private:
  size_t stride() const { return (slot_bytes_ + 63) / 64 * 64; }

  size_t slot_bytes_;
  Buffer slots_;
};

}  // namespace

std::unique_ptr<Exchange> make_local_exchange(size_t max_bytes) { return std::make_unique<LocalExchange>(max_bytes); }

}  // namespace coprime
