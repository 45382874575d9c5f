// Gates over a pair whose messages must meet posted receives: drives the machine (pair_machine.h) with a queue pair and
// the side channel beside it.
#include <array>
#include <utility>

#include "base/alignment.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "gate/pair_machine.h"
#include "gate/peer_link.h"
#include "tensor/buffer.h"

namespace coprime {
namespace {

constexpr int kPolledCompletions = 16;
// The side channel may end before the last message of a peer that has done its part and left is there.
constexpr int64_t kLastMessageUs = 50'000;

size_t whole_lines(size_t bytes) { return round_up(bytes, kCacheLineBytes); }

class WindowLink final : public PeerLink, private PairPort {
 public:
  WindowLink(std::unique_ptr<QueuePair> pair, SideChannel side, const GateSchedule& schedule,
             std::span<std::byte> out_slots)
      : pair_(std::move(pair)),
        side_(std::move(side)),
        plan_(schedule, pair_->limits()),
        memory_(lay_out(out_slots)),
        machine_(&plan_, &buffers_) {}
  ~WindowLink() override { pair_.reset(); }  // lets go of the memory first

  void begin_step(int rows, int next_rows) override { machine_.begin_step(row_class(rows), row_class(next_rows)); }

  void start(const Flight& flight) override {
    flight_ = flight;
    machine_.start(*this, flight);
  }

  bool done() override {
    while (advance()) {  // nothing may be left that no descriptor would tell of while the rank sleeps
    }
    if (machine_.done() && !pair_->holds_sends()) return true;
    if (++polls_ % kPeerClosedPolls == 0) peer_closed();
    note_failure();
    return false;
  }

  Arrival arrival() const override { return {machine_.arrival(), flight_.tag}; }
  void released() override {}

  bool peer_closed() override {
    if (!side_.peer_closed()) return false;
    if (closed_us_ == 0) closed_us_ = now_us();
    note_failure();
    return true;
  }

  uint64_t moved() const override { return machine_.moved(); }
  int wait_on(std::span<pollfd> into) const override {
    int count = 0;
    for (const pollfd& fd : {pair_->wait_on(), side_.wait_on()}) {
      if (fd.fd >= 0) into[static_cast<size_t>(count++)] = fd;
    }
    return count;
  }
  bool can_sleep() const override { return pair_->wait_on().fd >= 0; }
  const char* name() const override { return pair_->name(); }
  std::string waiting_for() const override { return machine_.timeout_text(); }
  uint64_t rearms() const override { return machine_.rearms(); }
  const std::string& failure() const override { return failure_; }

 private:
  // Whether there was anything to go on with.
  bool advance() {
    std::array<Completion, kPolledCompletions> completions;
    const int count = pair_->poll(completions);
    for (int i = 0; i < count; ++i) machine_.on_completion(*this, completions[static_cast<size_t>(i)]);
    bool advanced = count > 0;
    while (machine_.wants_barrier()) {
      const std::optional<Barrier> barrier = side_.receive();
      if (!barrier) break;
      machine_.on_barrier(*this, *barrier);
      advanced = true;
    }
    return advanced;
  }

  // Fills in buffers_.
  Buffer lay_out(std::span<std::byte> out_slots) {
    const size_t window = whole_lines(plan_.largest_capacity()),
                 bulk = whole_lines(largest_slot_bytes(plan_.schedule()));
    const size_t incoming = std::max(2 * window, bulk), dummy = whole_lines(plan_.dummy_bytes());
    // Outgoing slots of a kind that the device does not take are copied, bulk a window at a time.
    const bool staged = !pair_->register_memory(out_slots);
    const size_t staging =
        staged ? whole_lines(static_cast<size_t>(plan_.bulk_window_messages()) * plan_.chunk_bytes()) : 0;
    Buffer memory(incoming + dummy + (staged ? 2 * window + 2 * staging : 0));
    if (!pair_->register_memory({memory.data(), memory.size()})) {
      fail(ErrorKind::kLink, "{}: the device takes no memory for receives: use --link tcp", pair_->name());
    }
    std::byte* next = memory.data();
    buffers_.window_in = {std::span(next, window), std::span(next + window, window)};
    buffers_.bulk.in = {next, bulk};
    next += incoming;
    buffers_.dummy = {next, dummy};
    next += dummy;
    if (!staged) return memory;
    buffers_.window_out = {std::span(next, window), std::span(next + window, window)};
    buffers_.bulk.staging_in = {next + 2 * window, staging};
    buffers_.bulk.staging_out = {next + 2 * window + staging, staging};
    return memory;
  }

  void post_recv(std::span<const WorkRequest> chain) override { pair_->post_recv(chain); }
  void post_send(std::span<const WorkRequest> chain) override { pair_->post_send(chain); }
  void send_barrier(const Barrier& barrier) override { side_.send(barrier); }

  void note_failure() {
    if (!failure_.empty()) return;
    if (machine_.failed()) {
      failure_ = fmt::format("is out of step with this rank: {}", machine_.fault_text());
    } else if (!pair_->failure().empty()) {
      failure_ = pair_->failure();
    } else if (closed_us_ != 0 && now_us() - closed_us_ > kLastMessageUs) {
      failure_ = fmt::format("{} ({})", side_.failure(), machine_.closed_text());
    }
  }

  std::unique_ptr<QueuePair> pair_;
  SideChannel side_;
  const WindowPlan plan_;
  PairBuffers buffers_;
  const Buffer memory_;
  PairMachine machine_;
  Flight flight_;
  uint64_t polls_ = 0;
  int64_t closed_us_ = 0;  // when the side channel was first seen to have ended
  std::string failure_;
};

}  // namespace

std::unique_ptr<PeerLink> make_window_link(std::unique_ptr<QueuePair> pair, SideChannel side,
                                           const GateSchedule& schedule, std::span<std::byte> out_slots) {
  return std::make_unique<WindowLink>(std::move(pair), std::move(side), schedule, out_slots);
}

}  // namespace coprime
