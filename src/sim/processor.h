// A processing element: the CPU that runs a kernel (processor_cpu.cpp), and its engines MATH, GEMM and DMA under the
// scheduler (processor_engines.cpp); loops that repeat themselves (processor_loops.cpp). The rules of time are those of
// docs/simulator-model.md. It is the Core of tl::Tl.
//
// The CPU's clock runs ahead of the events: it stops only where it needs something that has not happened yet. That is
// exact, since the engines take commands from this CPU alone, in its order. So what has happened by the present event
// is never later than the CPU's clock.
#pragma once

#include <array>

#include "sim/composite.h"
#include "sim/dma_port.h"
#include "sim/loop_history.h"
#include "sim/network.h"
#include "tl/place.h"
#include "tl/tl.h"

namespace coprime::sim {

// How far each engine has come: numbers of operations, in the order of their issue.
enum Counter : uint8_t {
  kMathStarted,
  kMathEnded,
  kCompositesEnded,
  kSoftmaxStepsEnded,
  kSoftmaxPvEnded,
  kGemmsEnded,  // composites and softmax_pv together
  kDmaEnded,    // loads and stores
  kSent,        // messages that have left: a counter for each port
};
inline constexpr int kCounters = kSent + kPortsOfPe;

using tl::Place;

class Processor {
 public:
  // Of a tensor: counters that must have reached these values. 0: nothing to wait for.
  struct Use {
    uint32_t made = 0;  // of the counter made_by, for the tensor to be there
    uint8_t made_by = kMathEnded;
    uint16_t ports = 0;  // a bit for each port that it was sent through
    uint32_t math = 0, composites = 0, softmax_steps = 0, softmax_pvs = 0, dma = 0;  // who reads or writes it
    std::array<uint32_t, kPortsOfPe> sent = {};                                      // by port

    void inherit(const Use& other) { math = std::max(math, other.math); }  // nothing else outlives a scope
  };

  Processor(Context& context, Network& network, uint32_t index, Place place);
  Processor(const Processor&) = delete;

  // At `start`, from when on the CPU's moments count.
  void launch(tl::Task kernel, tl::Tl<Processor>& tl, const Moment& start);
  // After its kernel's end, before another's launch: what engines, counts and totals have come to stays.
  void rest();
  void drop_kernel() { kernel_ = {}; }  // its scopes end: while Tl still lives

  // Of tl::Tl.
  bool issue(tl::Command& command);
  void receive(const tl::Command& command, std::byte* into);
  bool busy(const Use& use) const;
  void note(std::string_view name, const tl::Elements& x);
  int program_id(int axis) const { return axis == 0 ? place_.pe : axis == 1 ? place_.cube : place_.sip; }
  int neighbour(tl::Level level, attention::Direction direction) const {
    return network_.neighbour(index_, level, direction);
  }

  void begin_loop();
  void end_loop() { --loop_depth_; }

  // Events. Those of a lower number than valid_from() no longer count: what they stood for has been moved.
  uint32_t valid_from() const { return valid_from_; }
  void on_start();
  void on_loop();
  void on_dma_end();
  void on_gemm_end();
  void on_drained();
  void on_math_end();
  void on_dma_choice();
  void on_gemm_choice();
  void on_math_choice();
  void on_sent(int port, const Moment& moment);  // a message has left
  void on_received(const Moment& moment);        // the receive that the CPU waits for has ended

  bool launched() const { return tl_ != nullptr; }
  bool ended() const { return kernel_.ended(); }
  void check() const { kernel_.check(); }  // throws what the kernel threw
  Moment end() const;
  const Place& place() const { return place_; }
  uint32_t index() const { return index_; }
  const Totals& totals() const { return totals_; }
  int64_t tcm_high_water() const;
  tl::Tl<Processor>& tl() { return *tl_; }

  // What the CPU waits for; null: nothing.
  const tl::Command* blocked() const { return blocked_; }

  const std::vector<tl::Note>& notes() const { return notes_; }

 private:
  static constexpr Tick kNever = ~Tick{0};
  static constexpr uint32_t kNoChannel = ~uint32_t{0}, kNoWake = kNoChannel - 1;  // of wait_channel_
  enum class MathWork : uint8_t { kNone, kJob, kSoftmaxStep, kAccumulation };

  struct MathJob {
    Moment seen;
    Tick ticks = 0;
    uint32_t op = 0, number = 0;
    uint16_t line = 0;
    OpKind kind = OpKind::kMax;
  };
  // Of the port to HBM: a load, a store, or all fetches of a composite.
  struct DmaJob {
    Moment seen;
    int64_t bytes = 0;
    uint32_t op = 0;
    uint16_t line = 0;
    OpKind kind = OpKind::kFetch;
  };
  struct StoredUse {
    uint32_t buffer = 0;
    Use use;
  };
  struct InFlight {
    Moment end;
    Stream* stream = nullptr;  // of a fetch
  };
  struct Drain {
    Moment end;
    bool of_softmax_pv = false;
    OpRow row;
  };
  struct SoftmaxPv {
    Moment seen, product_end;  // of its GEMM part, drained
    uint32_t op = 0, number = 0, index = 0;
    uint32_t scores_made = 0;  // of kCompositesEnded
    bool multiplied = false;
    uint16_t line = 0;
    Tick softmax_ticks = 0, accumulation_ticks = 0, start = 0;
    uint64_t bytes = 0, macs = 0;
  };

  // The CPU. need: whether the counter has come that far; where not, the CPU waits for it.
  bool need(int counter, uint32_t value) {
    if (reached_[static_cast<size_t>(counter)] >= value) return true;
    wait_counter_ = static_cast<uint8_t>(counter), wait_value_ = value;
    return false;
  }
  bool need_made(const Use& use) { return need(use.made_by, use.made); }
  bool need_made_for_math(const Use& use) { return use.made_by == kMathEnded || need_made(use); }
  bool need_sent(const Use& use);
  bool need_engines_done(const Use& use);  // but MATH
  bool need_all_done(const Use& use) { return need(kMathEnded, use.math) && need_engines_done(use); }
  bool await_end(int counter, uint32_t value);  // of what has just been issued
  void wake(const Moment& moment);              // after counters have moved
  void proceed(const Moment& moment);
  void spend_issue(const tl::Command& command);
  Use& use(const tl::Tensor& tensor) { return tl_->arena().use(tensor); }

  Use& stored_use(tl::Buffer buffer);  // of messages that lie in HBM

  bool issue_math(tl::Command& command);
  bool issue_gemm(tl::Command& command);
  bool issue_softmax_pv(tl::Command& command);
  bool issue_dma(tl::Command& command);
  bool issue_send(tl::Command& command);
  bool issue_receive(tl::Command& command);
  bool wait_receive(const tl::Command& command);
  bool await_receive(uint32_t channel, uint32_t index);
  bool wait_all();
  bool repeat(tl::Command& command);
  bool need_gemm_room();

  // Engines. pump: they start what they can. While softmax_pv are under way several queues share each of them, and they
  // choose by events of low priority instead, so that all that ends at a tick is known.
  bool shared() const { return !softmax_pvs_.empty(); }
  void choose(EventKind kind, Tick& pending, Tick time);
  void pump_math();
  void pump_gemm();
  void pump_dma();
  void start_math(MathWork work, const Moment& ready, Cause cause, Tick ticks, uint32_t op, uint16_t line, OpKind kind);
  void start_math_job();
  bool softmax_step_ready();
  void start_softmax_step();
  void start_accumulation();
  void end_softmax_step();
  void end_accumulation();
  void add_composite(Stream& stream, Composite composite, int64_t m);
  void start_step(Stream& stream);
  bool run_dma_job();
  bool fetch(Stream& stream);
  void in_flight(const DmaRun& run, Stream* stream, uint32_t op, uint16_t line, OpKind kind, int64_t bytes);

  // Loops (processor_loops.cpp).
  template <class See>
  void visit(See& see);
  void move_by(const Snapshot& now, const Snapshot& before, uint64_t times);
  void push_events();

  Context& context_;
  Network& network_;
  const uint32_t index_;
  const Place place_;
  tl::Tl<Processor>* tl_ = nullptr;
  tl::Task kernel_;

  Moment cpu_;
  tl::Command* blocked_ = nullptr;
  bool issued_ = false;  // what blocks the CPU has been issued: its end is awaited
  uint8_t wait_counter_ = 0;
  uint32_t wait_value_ = 0, wait_channel_ = kNoChannel;
  std::array<uint32_t, kCounters> reached_ = {};
  uint32_t issued_ops_ = 0, math_issued_ = 0, composites_issued_ = 0, softmax_pvs_issued_ = 0, dma_issued_ = 0;
  std::array<uint32_t, kPortsOfPe> sends_issued_ = {};
  std::array<uint32_t, kPortsOfPe> scratch_sends_ = {};  // the last one's number that lay in scratch memory
  Moment sent_;
  std::vector<StoredUse> stored_uses_;

  Ring<MathJob> math_queue_;
  Moment math_free_, math_start_;
  MathWork math_running_ = MathWork::kNone;
  OpRow math_row_;

  Stream stream_, pv_stream_;  // of composites, of softmax_pv
  Moment gemm_free_;
  Stream* gemm_running_ = nullptr;
  OpRow gemm_row_;
  Ring<Drain> drains_;
  Moment composite_end_, product_end_;  // the last ones' that are over; product: of a softmax_pv, before its drain

  DmaPort dma_;
  Ring<DmaJob> dma_queue_;
  Ring<InFlight> in_flight_;
  Ring<OpRow> in_flight_rows_;  // with a log
  Moment dma_end_;

  Ring<SoftmaxPv> softmax_pvs_;  // issued and not complete
  size_t softmax_steps_ = 0;     // of those, how many have begun theirs
  uint32_t products_ended_ = 0;  // GEMM parts, of all
  Tick dma_choice_ = kNever, gemm_choice_ = kNever, math_choice_ = kNever;

  std::vector<LoopHistory> loops_;  // by depth
  size_t loop_depth_ = 0;
  uint32_t valid_from_ = 0;
  bool moved_ = false;  // the CPU goes on at a kStart

  Totals totals_;
  std::vector<tl::Note> notes_;
};

}  // namespace coprime::sim
