// Loops that repeat themselves: a PE's state at the heads of iterations, and moving it over many of them at once.
#include "sim/processor.h"

namespace coprime::sim {

void Processor::begin_loop() {
  if (++loop_depth_ > loops_.size()) loops_.emplace_back();
  loops_[loop_depth_ - 1].clear();
}

// The CPU stops here for an event, so that what happens at this tick is whole before the state is looked at.
bool Processor::repeat(tl::Command& command) {
  if (!context_.forward || context_.with_data) {
    command.count = 0;
    return true;
  }
  wait_channel_ = kNoWake;
  context_.events.push(context_.now, EventKind::kLoop, index_);
  return false;
}

// Everything that later times depend on. see(Moment&): a time. see(Tick&): likewise. see(uint64_t): what must be equal.
// A count of operations is seen relative to those issued, since only differences matter.
template <class See>
void Processor::visit(See& see) {
  const auto number = [&](auto value) { see(static_cast<uint64_t>(value)); };
  const std::array<uint32_t, kSent> issued = {math_issued_,        math_issued_,
                                              composites_issued_,  softmax_pvs_issued_,
                                              softmax_pvs_issued_, composites_issued_ + softmax_pvs_issued_,
                                              dma_issued_};
  for (size_t counter = 0; counter < kSent; ++counter) number(issued[counter] - reached_[counter]);
  const auto pending = [&](size_t counter, uint32_t value) {
    const uint32_t of = counter < kSent ? issued[counter] : sends_issued_[counter - kSent];
    number(value > reached_[counter] ? of - value + 1 : 0);
  };
  see(cpu_);
  tl_->arena().visit([&](int64_t offset, int64_t bytes, const Use& use) {
    number(offset), number(bytes);
    number(use.made > reached_[use.made_by] ? use.made_by + 1 : 0);
    pending(use.made_by, use.made), pending(kMathEnded, use.math), pending(kCompositesEnded, use.composites);
    pending(kSoftmaxStepsEnded, use.softmax_steps), pending(kSoftmaxPvEnded, use.softmax_pvs);
    pending(kDmaEnded, use.dma);
    for (size_t port = 0; port < kPortsOfPe; ++port) {
      if (use.ports >> port & 1) pending(kSent + port, use.sent[port]);
    }
  });

  see(math_free_), number(math_running_), number(math_queue_.size());
  for (size_t i = 0; i < math_queue_.size(); ++i) see(math_queue_[i].seen), number(math_queue_[i].ticks);
  for (Stream* stream : {&stream_, &pv_stream_}) {
    number(stream->queue.size()), number(stream->fetching);
    number(stream->fetched - stream->consumed), number(stream->arrived - stream->consumed);
    number(std::min<size_t>(stream->fetched, stream->stages.size()));
    see(stream->stage_free);
    for (uint32_t step = stream->consumed; step != stream->fetched; ++step) see(stream->stage(step));
    for (size_t i = 0; i < stream->queue.size(); ++i) {
      Composite& composite = stream->queue[i];
      see(composite.seen), see(composite.a_ready);
      number(composite.k), number(composite.n), number(composite.step_ticks), number(composite.element_bytes);
      number(composite.fetched), number(composite.ended), number(composite.streamed), number(composite.ready);
    }
  }
  see(gemm_free_), number(gemm_running_ == nullptr ? 0 : gemm_running_ == &stream_ ? 1 : 2);
  number(drains_.size());
  for (size_t i = 0; i < drains_.size(); ++i) see(drains_[i].end), number(drains_[i].of_softmax_pv);
  see(composite_end_), see(product_end_);
  dma_.visit(see);
  number(dma_queue_.size());
  for (size_t i = 0; i < dma_queue_.size(); ++i) see(dma_queue_[i].seen), number(dma_queue_[i].bytes);
  number(in_flight_.size());
  for (size_t i = 0; i < in_flight_.size(); ++i) {
    see(in_flight_[i].end), number(in_flight_[i].stream == nullptr ? 0 : in_flight_[i].stream == &stream_ ? 1 : 2);
  }
  see(dma_end_);
  number(softmax_pvs_.size()), number(softmax_steps_);
  for (size_t i = 0; i < softmax_pvs_.size(); ++i) {
    SoftmaxPv& pv = softmax_pvs_[i];
    see(pv.seen), see(pv.product_end);
    number(pv.multiplied), number(pv.softmax_ticks), number(pv.accumulation_ticks);
    number(softmax_pvs_issued_ - pv.index), pending(kCompositesEnded, pv.scores_made);
    number(issued_ops_ - pv.number);
  }
  number(softmax_pvs_issued_ - products_ended_);
  for (Tick* choice : {&dma_choice_, &gemm_choice_, &math_choice_}) {
    number(*choice == kNever);
    if (*choice != kNever) see(*choice);
  }
}

void Processor::on_loop() {
  LoopHistory& history = loops_[loop_depth_ - 1];
  Snapshot& snapshot = history.add();
  snapshot.now = context_.now, snapshot.cpu = cpu_, snapshot.totals = totals_;
  snapshot.moments.clear(), snapshot.ticks.clear(), snapshot.numbers.clear();
  struct Take {
    Snapshot& into;
    void operator()(Moment& moment) { into.moments.push_back(moment); }
    void operator()(Tick& tick) { into.ticks.push_back(tick); }
    void operator()(uint64_t&& value) { into.numbers.push_back(value); }
  };
  Take see{snapshot};
  dma_.settle();
  visit(see);

  const auto period = static_cast<int64_t>(history.period(blocked_->receive));
  const int64_t alike = std::exchange(blocked_->count, 0);
  const int64_t times = period == 0 ? 0 : alike / period;
  wait_channel_ = kNoChannel;
  if (times == 0) {
    blocked_ = nullptr;
    return tl_->resume();
  }
  blocked_->count = times * period;
  const Snapshot& before = history.at(static_cast<size_t>(period));
  const Tick ticks = (snapshot.cpu.time - before.cpu.time) * static_cast<Tick>(times);
  move_by(snapshot, before, static_cast<uint64_t>(times));
  history.clear();
  push_events();
  wait_channel_ = kNoWake, moved_ = true;
  context_.events.push(context_.now + ticks, EventKind::kStart, index_);
}

void Processor::move_by(const Snapshot& now, const Snapshot& before, uint64_t times) {
  struct Move {
    const Snapshot &now, &before;
    uint64_t times;
    size_t moment = 0, tick = 0;

    void operator()(Moment& at) {
      const Moment& earlier = before.moments[moment++];
      if (at.time - earlier.time != now.cpu.time - before.cpu.time) return;  // has passed
      for (size_t part = 0; part < kParts; ++part) at.by[part] += times * (at.by[part] - earlier.by[part]);
      at.time += times * (at.time - earlier.time);
    }
    void operator()(Tick& at) {
      const Tick earlier = before.ticks[tick++];
      if (at - earlier == now.cpu.time - before.cpu.time) at += times * (at - earlier);
    }
    void operator()(uint64_t&&) {}
  };
  Move move{now, before, times};
  visit(move);
  Totals one = now.totals;
  one.combine(before.totals, [&](uint64_t a, uint64_t b) { return times * (a - b); });
  one.forwarded = times * (now.cpu.time - before.cpu.time);
  totals_.combine(one, kAdd);
}

// The events that the state stands for; those from before no longer count.
void Processor::push_events() {
  EventQueue& events = context_.events;
  valid_from_ = events.next_sequence();
  if (math_running_ != MathWork::kNone) events.push(math_free_.time, EventKind::kMathEnd, index_);
  if (gemm_running_) events.push(gemm_free_.time, EventKind::kGemmEnd, index_);
  if (!drains_.empty()) events.push(drains_.front().end.time, EventKind::kDrained, index_);
  if (!in_flight_.empty()) events.push(in_flight_.front().end.time, EventKind::kDmaEnd, index_);
  if (dma_choice_ != kNever) events.push(dma_choice_, EventKind::kDmaChoice, index_);
  if (gemm_choice_ != kNever) events.push(gemm_choice_, EventKind::kGemmChoice, index_);
  if (math_choice_ != kNever) events.push(math_choice_, EventKind::kMathChoice, index_);
}

}  // namespace coprime::sim
