// The engines of a PE. Each runs one thing at a time; what it starts, ends by an event.
#include "base/check.h"
#include "sim/processor.h"

namespace coprime::sim {

void Processor::choose(EventKind kind, Tick& pending, Tick time) {
  time = std::max(time, context_.now);
  if (time >= pending) return;
  pending = time;
  context_.events.push(time, kind, index_);
}

// ---- MATH

void Processor::pump_math() {
  if (math_running_ != MathWork::kNone) return;
  if (shared()) return choose(EventKind::kMathChoice, math_choice_, context_.now);
  if (!math_queue_.empty()) start_math_job();
}

void Processor::on_math_choice() {
  math_choice_ = kNever;
  if (math_running_ != MathWork::kNone) return;
  if (!shared()) return pump_math();
  const uint32_t none = ~uint32_t{0};
  const bool job_ready = !math_queue_.empty() && math_queue_.front().seen.time <= context_.now;
  const uint32_t job = job_ready ? math_queue_.front().number : none;
  const uint32_t accumulation = softmax_pvs_.front().multiplied ? softmax_pvs_.front().number : none;
  const uint32_t softmax = softmax_step_ready() ? softmax_pvs_[softmax_steps_].number : none;
  const uint32_t first = std::min({job, accumulation, softmax});
  if (first != none) {
    if (first == job) return start_math_job();
    return first == accumulation ? start_accumulation() : start_softmax_step();
  }
  if (!math_queue_.empty()) choose(EventKind::kMathChoice, math_choice_, math_queue_.front().seen.time);
  if (softmax_steps_ < softmax_pvs_.size() && softmax_pvs_[softmax_steps_].seen.time > context_.now) {
    choose(EventKind::kMathChoice, math_choice_, softmax_pvs_[softmax_steps_].seen.time);
  }
}

void Processor::start_math(MathWork work, const Moment& ready, Cause cause, Tick ticks, uint32_t op, uint16_t line,
                           OpKind kind) {
  math_running_ = work;
  const bool bound = ready.time > math_free_.time;
  if (context_.log) {
    math_row_ = {};
    math_row_.cause = bound ? cause : Cause::kEngine, math_row_.cause_op = bound ? ready.op : math_free_.op;
    math_row_.op = op, math_row_.line = line, math_row_.kind = kind, math_row_.pe = index_;
  }
  math_free_.wait(ready);
  COPRIME_CHECK(!shared() || math_free_.time == context_.now, "{} {}", math_free_.time, context_.now);
  math_row_.start = math_free_.time;
  if (blocked_ && wait_counter_ == kMathStarted) math_start_ = math_free_;
  math_free_.add(Part::kMath, ticks);
  math_free_.op = op;
  totals_.math += ticks;
  context_.events.push(math_free_.time, EventKind::kMathEnd, index_);
}

void Processor::start_math_job() {
  const MathJob job = math_queue_.front();
  math_queue_.pop();
  start_math(MathWork::kJob, job.seen, Cause::kIssue, job.ticks, job.op, job.line, job.kind);
  ++reached_[kMathStarted];
  if (wait_counter_ == kMathStarted) wake(math_start_);  // the end before may be what the CPU waits for: not yet told
}

bool Processor::softmax_step_ready() {
  if (softmax_steps_ >= softmax_pvs_.size()) return false;
  const SoftmaxPv& pv = softmax_pvs_[softmax_steps_];
  return pv.seen.time <= context_.now && reached_[kCompositesEnded] >= pv.scores_made &&
         products_ended_ + 2 >= pv.index;
}

void Processor::start_softmax_step() {
  SoftmaxPv& pv = softmax_pvs_[softmax_steps_++];
  Moment ready = pv.seen;
  ready.wait(composite_end_);
  ready.wait(product_end_);
  start_math(MathWork::kSoftmaxStep, ready, Cause::kData, pv.softmax_ticks, pv.op, pv.line, OpKind::kSoftmaxStep);
  pv.start = math_row_.start;
}

void Processor::start_accumulation() {
  const SoftmaxPv& pv = softmax_pvs_.front();
  start_math(MathWork::kAccumulation, pv.product_end, Cause::kData, pv.accumulation_ticks, pv.op, pv.line,
             OpKind::kAccumulatorStep);
}

void Processor::on_math_end() {
  const MathWork work = std::exchange(math_running_, MathWork::kNone);
  if (context_.log) {
    math_row_.end = math_free_.time;
    context_.append(math_row_);
  }
  if (work == MathWork::kSoftmaxStep) end_softmax_step();
  if (work == MathWork::kAccumulation) end_accumulation();
  const Moment end = math_free_;
  if (work == MathWork::kJob) ++reached_[kMathEnded];
  pump_math();
  wake(end);
}

void Processor::end_softmax_step() {
  ++reached_[kSoftmaxStepsEnded];
  size_t at = 0;
  while (pv_stream_.queue[at].ready) ++at;
  pv_stream_.queue[at].ready = true;
  pv_stream_.queue[at].a_ready = math_free_;
  pump_gemm();
}

void Processor::end_accumulation() {
  const SoftmaxPv& pv = softmax_pvs_.front();
  ++reached_[kSoftmaxPvEnded];
  ++reached_[kGemmsEnded];
  if (context_.log) {
    OpRow row = math_row_;
    row.start = pv.start, row.kind = OpKind::kSoftmaxPv, row.bytes = pv.bytes, row.macs = pv.macs;
    context_.append(row);
  }
  softmax_pvs_.pop();
  --softmax_steps_;
  if (shared()) return;
  pump_gemm();
  pump_dma();
}

// ---- GEMM

void Processor::add_composite(Stream& stream, Composite composite, int64_t m) {
  const GemmUnit& gemm = context_.chip.pe.gemm;
  const auto tiles = [](int64_t count, int64_t tile) { return (count + tile - 1) / tile; };
  const int64_t m_tiles = tiles(m, gemm.tile_m);
  composite.seen = cpu_;
  composite.k_tiles = static_cast<int32_t>(tiles(composite.k, gemm.tile_k));
  composite.steps = composite.k_tiles * static_cast<int32_t>(tiles(composite.n, gemm.tile_n));
  composite.step_ticks = static_cast<Tick>(m_tiles) * context_.cycles(gemm.subtile_cycles);
  composite.macs = static_cast<uint64_t>(m * composite.k * composite.n);
  totals_.macs += composite.macs;
  totals_.subtiles += static_cast<uint64_t>(m_tiles * composite.steps);
  const bool streamed = composite.streamed;
  if (streamed) {
    totals_.hbm_read += static_cast<uint64_t>(composite.k * composite.n * composite.element_bytes);
    if (&stream == &stream_) dma_queue_.push({});
  }
  stream.queue.push(std::move(composite));
  if (streamed) pump_dma();
  pump_gemm();
}

void Processor::pump_gemm() {
  if (gemm_running_) return;
  if (shared()) return choose(EventKind::kGemmChoice, gemm_choice_, context_.now);
  if (stream_.step_ready()) start_step(stream_);
}

void Processor::on_gemm_choice() {
  gemm_choice_ = kNever;
  if (gemm_running_) return;
  if (!shared()) return pump_gemm();
  const bool first = stream_.step_ready(), second = pv_stream_.step_ready();
  const bool first_seen = first && stream_.queue.front().seen.time <= context_.now;
  if (first_seen && (!second || stream_.queue.front().number < pv_stream_.queue.front().number))
    return start_step(stream_);
  if (second) return start_step(pv_stream_);
  if (first) choose(EventKind::kGemmChoice, gemm_choice_, stream_.queue.front().seen.time);
}

void Processor::start_step(Stream& stream) {
  Composite& composite = stream.queue.front();
  const GemmUnit& gemm = context_.chip.pe.gemm;
  const Moment* ready = &later(composite.seen, composite.a_ready);
  Cause cause = composite.of_softmax_pv ? Cause::kData : Cause::kIssue;
  if (composite.streamed && stream.stage(stream.consumed).time >= ready->time) {
    ready = &stream.stage(stream.consumed), cause = Cause::kData;
  }
  if (context_.log) {
    gemm_row_ = {};
    const bool bound = ready->time > gemm_free_.time;
    gemm_row_.cause = bound ? cause : Cause::kEngine, gemm_row_.cause_op = bound ? ready->op : gemm_free_.op;
    gemm_row_.op = context_.next_op(), gemm_row_.line = composite.line, gemm_row_.kind = OpKind::kSubtile;
    gemm_row_.pe = index_;
  }
  gemm_free_.wait(*ready);
  COPRIME_CHECK(!shared() || gemm_free_.time == context_.now, "{} {}", gemm_free_.time, context_.now);
  gemm_row_.start = gemm_free_.time;
  Tick ticks = composite.step_ticks;
  if (composite.ended == 0) {
    composite.start = gemm_free_.time;
    composite.cause = gemm_row_.cause, composite.cause_op = gemm_row_.cause_op;
    ticks += context_.cycles(gemm.fill_cycles);
  }
  gemm_free_.add(Part::kGemm, ticks);
  gemm_free_.op = composite.op;
  totals_.gemm += ticks;
  gemm_running_ = &stream;
  context_.events.push(gemm_free_.time, EventKind::kGemmEnd, index_);
}

void Processor::on_gemm_end() {
  Stream& stream = *std::exchange(gemm_running_, nullptr);
  Composite& composite = stream.queue.front();
  if (context_.log) {
    gemm_row_.end = gemm_free_.time;
    context_.append(gemm_row_);
  }
  const bool streamed = composite.streamed, of_softmax_pv = composite.of_softmax_pv;
  if (streamed) ++stream.consumed, stream.stage_free = gemm_free_;
  const bool last = ++composite.ended == composite.steps;
  if (last) {
    Drain& drain = drains_.push({});
    drain.end = gemm_free_;
    drain.end.add(Part::kDrain, context_.cycles(context_.chip.pe.gemm.drain_cycles));
    drain.of_softmax_pv = of_softmax_pv;
    drain.row.op = composite.op, drain.row.line = composite.line, drain.row.kind = OpKind::kComposite;
    drain.row.start = composite.start, drain.row.end = drain.end.time, drain.row.pe = index_;
    drain.row.cause = composite.cause, drain.row.cause_op = composite.cause_op;
    drain.row.macs = composite.macs;
    drain.row.bytes = streamed ? static_cast<uint64_t>(composite.k * composite.n * composite.element_bytes) : 0;
    if (drains_.size() == 1) context_.events.push(drain.end.time, EventKind::kDrained, index_);
    stream.pop();
    if (of_softmax_pv) ++products_ended_, product_end_ = gemm_free_;
  }
  pump_gemm();
  if (streamed) pump_dma();
  if (last && of_softmax_pv) pump_math();
}

void Processor::on_drained() {
  const Drain drain = drains_.front();
  drains_.pop();
  if (!drains_.empty()) context_.events.push(drains_.front().end.time, EventKind::kDrained, index_);
  if (drain.of_softmax_pv) {
    size_t at = 0;
    while (softmax_pvs_[at].multiplied) ++at;
    softmax_pvs_[at].multiplied = true;
    softmax_pvs_[at].product_end = drain.end;
    return pump_math();
  }
  context_.append(drain.row);
  composite_end_ = drain.end;
  ++reached_[kCompositesEnded];
  ++reached_[kGemmsEnded];
  if (shared()) pump_math();
  wake(drain.end);
}

// ---- DMA

bool Processor::fetch(Stream& stream) {
  Composite& composite = *stream.next_to_fetch();
  if (!stream.stage_available()) return false;
  const bool stage_bound = stream.stage_bound() && stream.stage_free.time > composite.seen.time;
  const int64_t bytes = composite.step_bytes(context_.chip.pe.gemm, composite.fetched);
  const uint32_t op = context_.next_op();
  const DmaRun run = dma_.run(op, stage_bound ? stream.stage_free : composite.seen,
                              stage_bound ? Cause::kBuffer : Cause::kIssue, bytes);
  stream.stage(stream.fetched++) = run.end;
  ++composite.fetched;
  ++totals_.fetches;
  in_flight(run, &stream, op, composite.line, OpKind::kFetch, bytes);
  return true;
}

// The job at the head, or one fetch of it; false: a stage is missing.
bool Processor::run_dma_job() {
  const DmaJob job = dma_queue_.front();
  if (job.bytes == 0) {
    Composite& composite = *stream_.next_to_fetch();
    if (!fetch(stream_)) return false;
    if (composite.fetched == composite.steps) dma_queue_.pop();
    return true;
  }
  dma_queue_.pop();
  in_flight(dma_.run(job.op, job.seen, Cause::kIssue, job.bytes), nullptr, job.op, job.line, job.kind, job.bytes);
  return true;
}

void Processor::in_flight(const DmaRun& run, Stream* stream, uint32_t op, uint16_t line, OpKind kind, int64_t bytes) {
  totals_.dma += run.busy;
  in_flight_.push({run.end, stream});
  if (in_flight_.size() == 1) context_.events.push(run.end.time, EventKind::kDmaEnd, index_);
  if (!context_.log) return;
  OpRow& row = in_flight_rows_.push({});
  row.start = run.start, row.end = run.end.time, row.cause = run.cause, row.cause_op = run.cause_op;
  row.op = op, row.line = line, row.kind = kind, row.bytes = static_cast<uint64_t>(bytes), row.pe = index_;
}

void Processor::pump_dma() {
  if (shared()) return choose(EventKind::kDmaChoice, dma_choice_, dma_.available());
  while (!dma_queue_.empty() && run_dma_job()) {
  }
}

void Processor::on_dma_choice() {
  dma_choice_ = kNever;
  if (!shared()) return pump_dma();
  if (dma_.available() > context_.now) return choose(EventKind::kDmaChoice, dma_choice_, dma_.available());
  const bool job = !dma_queue_.empty() && (dma_queue_.front().bytes != 0 || stream_.stage_available());
  const bool values = pv_stream_.next_to_fetch() != nullptr && pv_stream_.stage_available();
  const Tick job_seen = !job                       ? kNever
                        : dma_queue_.front().bytes ? dma_queue_.front().seen.time
                                                   : stream_.next_to_fetch()->seen.time;
  const Tick values_seen = values ? pv_stream_.next_to_fetch()->seen.time : kNever;
  if (job_seen <= context_.now) {
    run_dma_job();
  } else if (values_seen <= context_.now) {
    fetch(pv_stream_);
  } else if (job || values) {
    return choose(EventKind::kDmaChoice, dma_choice_, std::min(job_seen, values_seen));
  } else {
    return;
  }
  choose(EventKind::kDmaChoice, dma_choice_, dma_.available());
}

void Processor::on_dma_end() {
  const InFlight ended = in_flight_.front();
  in_flight_.pop();
  if (!in_flight_.empty()) context_.events.push(in_flight_.front().end.time, EventKind::kDmaEnd, index_);
  if (context_.log) {
    context_.append(in_flight_rows_.front());
    in_flight_rows_.pop();
  }
  if (ended.stream) {
    ++ended.stream->arrived;
    return pump_gemm();
  }
  dma_end_ = ended.end;
  ++reached_[kDmaEnded];
  wake(ended.end);
}

}  // namespace coprime::sim
