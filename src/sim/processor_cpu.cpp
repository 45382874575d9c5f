// The CPU of a PE: what it waits for before an operation, and handing it to an engine.
#include "sim/processor.h"

#include <algorithm>
#include <bit>
#include <ranges>

namespace coprime::sim {

Processor::Processor(Context& context, Network& network, uint32_t index, Place place)
    : context_(context),
      network_(network),
      index_(index),
      place_(place),
      stream_(context.chip),
      pv_stream_(context.chip),
      dma_(context.chip) {}

void Processor::launch(tl::Task kernel, tl::Tl<Processor>& tl, const Moment& start) {
  kernel_ = std::move(kernel);
  tl_ = &tl;
  cpu_ = start;
  context_.events.push(start.time, EventKind::kStart, index_);
}

void Processor::rest() {
  kernel_ = {};  // its scopes end while Tl still lives
  tl_ = nullptr;
  stored_uses_.clear();
  notes_.clear();
}

void Processor::on_start() {
  if (!moved_) return kernel_.start(tl_->runner());
  moved_ = false;
  blocked_ = nullptr, wait_channel_ = kNoChannel;
  tl_->resume();
}

bool Processor::issue(tl::Command& command) {
  bool done = false;
  switch (command.op) {
    case tl::Op::kLoad:
    case tl::Op::kStore:
      done = issue_dma(command);
      break;
    case tl::Op::kComposite:
    case tl::Op::kDot:
      done = issue_gemm(command);
      break;
    case tl::Op::kSoftmaxPv:
      done = issue_softmax_pv(command);
      break;
    case tl::Op::kSend:
      done = issue_send(command);
      break;
    case tl::Op::kRecv:
    case tl::Op::kRecvAsync:
      done = issue_receive(command);
      break;
    case tl::Op::kWait:
      done = wait_receive(command);
      break;
    case tl::Op::kWaitAll:
      done = wait_all();
      break;
    case tl::Op::kRepeat:
      done = repeat(command);
      break;
    default:
      done = issue_math(command);
  }
  blocked_ = done ? nullptr : &command;
  return done;
}

void Processor::wake(const Moment& moment) {
  if (blocked_ && wait_channel_ == kNoChannel && reached_[wait_counter_] >= wait_value_) proceed(moment);
}

void Processor::proceed(const Moment& moment) {
  cpu_.wait(moment);
  tl::Command* const command = blocked_;
  blocked_ = nullptr;
  if (!issued_) {
    if (!issue(*command)) return;
  } else {
    issued_ = false;
    if (command->op == tl::Op::kRecv) spend_issue(*command);
  }
  tl_->resume();
}

bool Processor::await_end(int counter, uint32_t value) {
  issued_ = !need(counter, value);
  return !issued_;
}

void Processor::spend_issue(const tl::Command& command) {
  const auto op = static_cast<size_t>(command.op);
  cpu_.add(Part::kIssue, context_.issue_ticks[op]);
  totals_.issue += context_.issue_ticks[op];
  ++totals_.issued[op];
}

bool Processor::need_sent(const Use& use) {
  for (unsigned ports = use.ports; ports != 0; ports &= ports - 1) {
    const int port = std::countr_zero(ports);
    if (!need(kSent + port, use.sent[static_cast<size_t>(port)])) return false;
  }
  return true;
}

bool Processor::need_engines_done(const Use& use) {
  return need(kCompositesEnded, use.composites) && need(kSoftmaxStepsEnded, use.softmax_steps) &&
         need(kSoftmaxPvEnded, use.softmax_pvs) && need(kDmaEnded, use.dma) && need_sent(use);
}

bool Processor::busy(const Use& use) const {
  for (size_t port = 0; port < kPortsOfPe; ++port) {
    if (reached_[kSent + port] < use.sent[port]) return true;
  }
  return reached_[kCompositesEnded] < use.composites || reached_[kSoftmaxStepsEnded] < use.softmax_steps ||
         reached_[kSoftmaxPvEnded] < use.softmax_pvs || reached_[kDmaEnded] < use.dma;
}

bool Processor::issue_math(tl::Command& command) {
  const int64_t depth = context_.chip.pe.math.queue_depth;
  Use& out = use(command.out);
  if (command.a && !need_made_for_math(use(command.a))) return false;
  if (command.b && !need_made_for_math(use(command.b))) return false;
  if (!need_engines_done(out)) return false;
  if (math_issued_ >= depth && !need(kMathStarted, math_issued_ + 1 - static_cast<uint32_t>(depth))) return false;

  spend_issue(command);
  const uint32_t index = ++math_issued_;
  if (command.a) use(command.a).math = index;
  if (command.b) use(command.b).math = index;
  out.math = out.made = index, out.made_by = kMathEnded;

  const int64_t elements = std::max({command.a.elements(), command.b.elements(), command.out.elements()});
  MathJob& job = math_queue_.push({});
  job.seen = cpu_;
  job.ticks = context_.math_ticks(command.op, elements);
  job.op = context_.next_op(), job.number = issued_ops_++;
  job.line = command.line;
  job.kind = static_cast<OpKind>(static_cast<int>(OpKind::kMax) + static_cast<int>(command.op) -
                                 static_cast<int>(tl::Op::kMax));
  totals_.math_lanes += static_cast<uint64_t>(elements);
  pump_math();
  return !(context_.chip.pe.math.blocking || context_.serial) || await_end(kMathEnded, index);
}

Processor::Use& Processor::stored_use(tl::Buffer buffer) {
  for (StoredUse& one : stored_uses_) {
    if (one.buffer == buffer.id) return one.use;
  }
  return stored_uses_.emplace_back(StoredUse{buffer.id, {}}).use;
}

bool Processor::need_gemm_room() {
  const uint32_t issued = composites_issued_ + softmax_pvs_issued_;
  const auto depth = static_cast<uint32_t>(context_.chip.pe.gemm.composite_depth);
  return issued < depth || need(kGemmsEnded, issued + 1 - depth);
}

bool Processor::issue_gemm(tl::Command& command) {
  if (!need_made(use(command.a))) return false;
  if (command.b && !need_made(use(command.b))) return false;
  for (const tl::Epilogue& epilogue : command.epilogue) {
    if (epilogue.operand && !need_made(use(epilogue.operand))) return false;
  }
  if (!need_all_done(use(command.out)) || !need_gemm_room()) return false;

  spend_issue(command);
  const uint32_t index = ++composites_issued_;
  use(command.a).composites = index;
  if (command.b) use(command.b).composites = index;
  for (const tl::Epilogue& epilogue : command.epilogue) {
    if (epilogue.operand) use(epilogue.operand).composites = index;
  }
  Use& out = use(command.out);
  out.composites = out.made = index, out.made_by = kCompositesEnded;

  Composite composite;
  composite.op = context_.next_op(), composite.number = issued_ops_++, composite.line = command.line;
  composite.k = command.a.columns, composite.n = command.out.columns;
  composite.streamed = !command.b;
  composite.element_bytes = static_cast<int32_t>(tl::bytes_of(command.b ? command.b.type : command.hbm.buffer.type));
  add_composite(stream_, std::move(composite), command.a.rows);
  return (command.op == tl::Op::kComposite && !context_.serial) || await_end(kCompositesEnded, index);
}

bool Processor::issue_softmax_pv(tl::Command& command) {
  for (const tl::Tensor& tensor : {command.state.m, command.state.l, command.state.o}) {
    const Use& state = use(tensor);
    if (state.made_by != kSoftmaxPvEnded && !need_all_done(state)) return false;
  }
  if (!need_gemm_room()) return false;

  spend_issue(command);
  const uint32_t index = ++softmax_pvs_issued_;
  use(command.a).softmax_steps = index;
  for (const tl::Tensor& tensor : {command.state.m, command.state.l, command.state.o}) {
    Use& state = use(tensor);
    state.softmax_pvs = state.made = index, state.made_by = kSoftmaxPvEnded;
  }

  const int64_t m = command.a.rows, t = command.a.columns, d = command.hbm.columns;
  SoftmaxPv& pv = softmax_pvs_.push({});
  pv.seen = cpu_;
  pv.op = context_.next_op(), pv.number = issued_ops_++, pv.index = index, pv.line = command.line;
  const Use& scores = use(command.a);
  pv.scores_made = scores.made_by == kCompositesEnded ? scores.made : 0;
  using tl::Op;
  const auto ticks = [&](Op op, int64_t elements) { return context_.math_ticks(op, elements); };
  pv.softmax_ticks = ticks(Op::kMax, m * t) + ticks(Op::kMaximum, m) + ticks(Op::kSub, m * t) + ticks(Op::kExp, m * t) +
                     ticks(Op::kSub, m) + ticks(Op::kExp, m) + ticks(Op::kSum, m * t) + ticks(Op::kMul, m) +
                     ticks(Op::kAdd, m);
  pv.accumulation_ticks = ticks(Op::kMul, m * d) + ticks(Op::kAdd, m * d);
  pv.bytes = static_cast<uint64_t>(command.hbm.bytes());
  pv.macs = static_cast<uint64_t>(m * t * d);
  totals_.math_lanes += static_cast<uint64_t>(4 * m * t + 5 * m + 2 * m * d);

  Composite composite;
  composite.op = pv.op, composite.number = pv.number, composite.line = command.line;
  composite.k = t, composite.n = d;
  composite.streamed = composite.of_softmax_pv = true, composite.ready = false;
  composite.element_bytes = static_cast<int32_t>(tl::bytes_of(command.hbm.buffer.type));
  add_composite(pv_stream_, std::move(composite), m);
  pump_math();
  return !context_.serial || await_end(kSoftmaxPvEnded, index);
}

bool Processor::issue_dma(tl::Command& command) {
  const bool store = command.op == tl::Op::kStore;
  if (store ? !need_made(use(command.a)) : !need_all_done(use(command.out))) return false;

  spend_issue(command);
  Use& tensor = use(store ? command.a : command.out);
  tensor.dma = ++dma_issued_;
  if (!store) tensor.made = dma_issued_, tensor.made_by = kDmaEnded;
  DmaJob& job = dma_queue_.push({});
  job.seen = cpu_;
  job.bytes = command.hbm.bytes();
  job.op = context_.next_op(), job.line = command.line;
  job.kind = store ? OpKind::kStore : OpKind::kLoad;
  ++issued_ops_;
  (store ? totals_.hbm_written : totals_.hbm_read) += static_cast<uint64_t>(job.bytes);
  pump_dma();
  return !context_.serial || await_end(kDmaEnded, dma_issued_);
}

bool Processor::issue_send(tl::Command& command) {
  Use& tensor = command.a ? use(command.a) : stored_use(command.hbm.buffer);
  if (!need_made(tensor)) return false;
  const uint32_t channel = network_.channel_to(index_, command.peer);
  const auto port = static_cast<size_t>(network_.port_of(channel));

  spend_issue(command);
  tensor.ports |= static_cast<uint16_t>(1u << port);
  tensor.sent[port] = ++sends_issued_[port];
  if (command.a) scratch_sends_[port] = sends_issued_[port];
  ++issued_ops_;
  OpRow row;
  row.op = context_.next_op(), row.line = command.line, row.kind = OpKind::kSend, row.pe = index_;
  row.bytes = static_cast<uint64_t>(command.message_bytes());
  if (!command.a) totals_.hbm_read += row.bytes;
  std::unique_ptr<std::byte[]> payload;
  if (context_.with_data) {
    payload = std::make_unique<std::byte[]>(row.bytes);
    tl_->read_message(command, payload.get());
  }
  network_.send(channel, cpu_, row, std::move(payload));
  return true;
}

bool Processor::issue_receive(tl::Command& command) {
  if (!need_all_done(command.out ? use(command.out) : stored_use(command.hbm.buffer))) return false;
  const uint32_t channel = network_.channel_from(index_, command.peer);
  command.receive = network_.posted(channel);
  ++issued_ops_;
  OpRow row;
  row.op = context_.next_op(), row.line = command.line, row.kind = OpKind::kRecv, row.pe = index_;
  row.bytes = static_cast<uint64_t>(command.message_bytes());
  if (!command.out) totals_.hbm_written += row.bytes;
  if (command.op == tl::Op::kRecvAsync) {
    spend_issue(command);
    network_.post(channel, cpu_, row);
    return true;
  }
  network_.post(channel, cpu_, row);
  if (!await_receive(channel, command.receive)) {
    issued_ = true;
    return false;
  }
  spend_issue(command);
  return true;
}

bool Processor::wait_receive(const tl::Command& command) {
  issued_ = !await_receive(network_.channel_from(index_, command.peer), command.receive);
  return !issued_;
}

bool Processor::await_receive(uint32_t channel, uint32_t index) {
  const std::optional<Moment> end = network_.wait(channel, index);
  if (end) {
    cpu_.wait(*end);
  } else {
    wait_channel_ = channel;
  }
  return end.has_value();
}

void Processor::on_received(const Moment& moment) {
  wait_channel_ = kNoChannel;
  proceed(moment);
}

void Processor::on_sent(int port, const Moment& moment) {
  ++reached_[static_cast<size_t>(kSent + port)];
  sent_.wait(moment);
  wake(moment);
}

bool Processor::wait_all() {
  for (int port = 0; port < kPortsOfPe; ++port) {
    if (!need(kSent + port, scratch_sends_[static_cast<size_t>(port)])) return false;
  }
  return need(kMathEnded, math_issued_) && need(kCompositesEnded, composites_issued_) &&
         need(kSoftmaxPvEnded, softmax_pvs_issued_) && need(kDmaEnded, dma_issued_);
}

void Processor::receive(const tl::Command& command, std::byte* into) {
  const auto payload = network_.take_payload(network_.channel_from(index_, command.peer), command.receive);
  std::memcpy(into, payload.get(), static_cast<size_t>(command.message_bytes()));
}

void Processor::note(std::string_view name, const tl::Elements& x) {
  tl::Note& note = notes_.emplace_back();
  note.name = name;
  note.values.resize(static_cast<size_t>(x.rows * x.columns));
  tl::widen(x, note.values.data());
}

Moment Processor::end() const {
  Moment end = cpu_;
  for (const Moment& other : {math_free_, composite_end_, dma_end_, sent_}) end.wait(other);
  return end;
}

int64_t Processor::tcm_high_water() const {
  const GemmUnit& gemm = context_.chip.pe.gemm;
  const int64_t stages = context_.chip.pe.dma.stages * gemm.tile_k * gemm.tile_n * 2;
  return tl_->arena().high_water() + stages * (softmax_pvs_issued_ > 0 ? 2 : 1);
}

}  // namespace coprime::sim
