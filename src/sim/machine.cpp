#include "sim/machine.h"

#include <utility>

#include "attention/cube_groups.h"
#include "base/check.h"
#include "base/error.h"
#include "tl/wait_graph.h"

namespace coprime::sim {
namespace {

constexpr uint64_t kEventsOfProgress = 1 << 14;

}  // namespace

Machine::Machine(const Chip& chip, int first_sip, int sips, OpLog* log, bool forward)
    : context_(chip, log),
      first_sip_(first_sip),
      pes_(attention::pe_mesh(static_cast<int>(chip.pes))),
      cubes_{static_cast<int>(chip.cube_rows), static_cast<int>(chip.cube_columns)},
      network_(context_, pes_, cubes_, sips) {
  const auto count = static_cast<uint32_t>(sips * cubes_.size() * pes_.size());
  for (uint32_t index = 0; index < count; ++index) {
    const int cube = static_cast<int>(index) / pes_.size();
    const Place place{first_sip + cube / cubes_.size(), cube % cubes_.size(), static_cast<int>(index) % pes_.size()};
    processors_.push_back(std::make_unique<Processor>(context_, network_, index, place));
  }
  context_.forward = forward && !log;
  tls_.resize(count);
  network_.attach(processors_);
}

Machine::~Machine() {
  for (const auto& processor : processors_) processor->drop_kernel();
}

uint32_t Machine::index_of(Place place) const {
  return static_cast<uint32_t>(((place.sip - first_sip_) * cubes_.size() + place.cube) * pes_.size() + place.pe);
}

void Machine::launch(Place place, const std::string& kernel, tl::Hbm* hbm, const MakeKernel& make,
                     const std::optional<std::vector<tl::Peer>>& sends_to) {
  const uint32_t index = index_of(place);
  Processor& processor = *processors_[index];
  COPRIME_CHECK(!processor.launched(), "{}", index);
  context_.with_data = hbm != nullptr;
  if (!sends_to) ++undeclared_;
  for (const tl::Peer& peer : sends_to.value_or(std::vector<tl::Peer>{})) network_.declare(index, peer);
  const std::string name = kernel + " on " + name_of(place);
  tls_[index] = std::make_unique<tl::Tl<Processor>>(processor, name, context_.chip.pe.arena_bytes, hbm);
  processor.launch(make(*tls_[index]), *tls_[index], start_);
}

MachineTotals Machine::run(const Progress& progress) {
  if (!std::exchange(begun_, true)) network_.begin(undeclared_ == 0);
  EventQueue& events = context_.events;
  for (uint64_t done = 0; !events.empty(); done += kEventsOfProgress) {
    if (progress) progress(context_.now, done);
    for (uint64_t i = 0; i < kEventsOfProgress && !events.empty(); ++i) {
      const Event event = events.pop();
      context_.event = event, context_.now = event.time;
      if (dispatch(event)) ++events_[static_cast<size_t>(event.kind())];
    }
  }
  bool ended = true;
  for (const auto& processor : processors_) {
    if (!processor->launched() || !processor->ended()) {
      ended = ended && !processor->launched();
      continue;
    }
    processor->check();
  }
  if (!ended) report_deadlock();
  return totals();
}

LayerRecord Machine::next_layer() {
  LayerRecord record = before_;
  record.pes.clear();
  record.start = start_.time;
  Moment end = start_;
  for (const auto& processor : processors_) {
    if (processor->launched()) end.wait(processor->end());
  }
  const auto minus = [](uint64_t a, uint64_t b) { return a - b; };
  before_.pes.resize(processors_.size());
  for (const auto& processor : processors_) {
    if (!processor->launched()) continue;
    const Moment ended = processor->end();
    LayerRecord::PeRecord& total = before_.pes[processor->index()];
    LayerRecord::PeRecord& one = record.pes.emplace_back();
    one.pe = processor->index();
    one.ticks = ended.time - start_.time;
    for (size_t part = 0; part < kParts; ++part) one.by[part] = ended.by[part] - start_.by[part];
    one.totals = processor->totals();
    one.totals.combine(total.totals, minus);
    total.totals = processor->totals();
    one.totals.forwarded = 0;
    one.arena_high_water = tls_[one.pe]->arena().high_water();
    processor->rest();
    tls_[one.pe].reset();
  }
  const auto& levels = network_.totals();
  for (size_t i = 0; i < levels.size(); ++i) {
    LevelTotals& level = record.levels[i];
    level.messages = levels[i].messages - level.messages, level.sent = levels[i].sent - level.sent;
    level.received = levels[i].received - level.received, level.byte_hops = levels[i].byte_hops - level.byte_hops;
  }
  before_.levels = levels;
  before_.first_op = context_.ops;
  start_ = {end.time, 0, end.by};
  return record;
}

std::string difference(const LayerRecord& one, const LayerRecord& other) {
  if (one.pes.size() != other.pes.size())
    return fmt::format("{} PEs ran a kernel, then {}", one.pes.size(), other.pes.size());
  for (size_t i = 0; i < one.pes.size(); ++i) {
    const LayerRecord::PeRecord &a = one.pes[i], &b = other.pes[i];
    if (a.ticks != b.ticks) return fmt::format("PE {} took {} ticks, then {}", a.pe, a.ticks, b.ticks);
    if (a != b) return fmt::format("PE {} took as long, but what its engines did is not the same", a.pe);
  }
  for (size_t i = 0; i < one.levels.size(); ++i) {
    const LevelTotals &a = one.levels[i], &b = other.levels[i];
    if (a.messages != b.messages || a.sent != b.sent || a.received != b.received || a.byte_hops != b.byte_hops)
      return fmt::format("{} messages of {} bytes, then {} of {}", a.messages, a.sent, b.messages, b.sent);
  }
  return "";
}

// Whether it still counted.
bool Machine::dispatch(const Event& event) {
  const uint32_t component = event.component();
  switch (event.kind()) {
    case EventKind::kReceived:
      network_.on_received(component);
      return true;
    case EventKind::kSent:
      network_.on_sent(component);
      return true;
    case EventKind::kHop:
      network_.on_hop(component);
      return true;
    case EventKind::kPort:
      if (event.sequence() < network_.valid_from(component)) return false;
      network_.on_port(component);
      return true;
    default:
      break;
  }
  Processor& processor = *processors_[component];
  if (event.sequence() < processor.valid_from()) return false;
  switch (event.kind()) {
    case EventKind::kLoop:
      processor.on_loop();
      break;
    case EventKind::kDmaEnd:
      processor.on_dma_end();
      break;
    case EventKind::kGemmEnd:
      processor.on_gemm_end();
      break;
    case EventKind::kDrained:
      processor.on_drained();
      break;
    case EventKind::kMathEnd:
      processor.on_math_end();
      break;
    case EventKind::kDmaChoice:
      processor.on_dma_choice();
      break;
    case EventKind::kGemmChoice:
      processor.on_gemm_choice();
      break;
    case EventKind::kMathChoice:
      processor.on_math_choice();
      break;
    default:
      processor.on_start();
  }
  return true;
}

void Machine::report_deadlock() const {
  std::vector<tl::Waiting> waiting;
  for (const auto& processor : processors_) {
    const tl::Command* const command = processor->blocked();
    if (!processor->launched() || processor->ended() || !command) continue;
    tl::Waiting& one = waiting.emplace_back();
    one.pe = processor->index(), one.line = command->line, one.op = command->op;
    const int stuck = network_.stuck_on(one.pe);
    if (command->op == tl::Op::kRecv || command->op == tl::Op::kWait) {
      one.what = tl::Waiting::What::kMessage, one.on = network_.sender_of(one.pe, command->peer);
    } else if (stuck >= 0) {
      one.what = tl::Waiting::What::kRoom, one.on = static_cast<uint32_t>(stuck);
    }
  }
  const auto name = [this](uint32_t index) { return tl::name_of(processors_[index]->place()); };
  fail(ErrorKind::kUsage, "{} PEs wait for what will never come at tick {}{}", waiting.size(), context_.now,
       tl::describe(waiting, name));
}

MachineTotals Machine::totals() const {
  MachineTotals totals;
  totals.events = events_;
  totals.levels = network_.totals();
  totals.busiest_link = network_.busiest_link();
  totals.packets = network_.packets();
  const auto largest = [](auto& into, auto value) { into = std::max(into, value); };
  for (const auto& processor : processors_) {
    if (!processor->launched()) continue;
    const Moment end = processor->end();
    Tick parts = 0;
    for (const Tick part : end.by) parts += part;
    COPRIME_CHECK(parts == end.time, "{} {}", parts, end.time);
    if (end.time > totals.end.time) totals.end = end, totals.last_pe = processor->index();
    const Totals& pe = processor->totals();
    for (const Tick busy : {pe.issue, pe.math, pe.gemm, pe.dma}) {
      COPRIME_CHECK(busy <= end.time, "PE {} has a resource that was busy for {} of {}", processor->index(), busy,
                    end.time);
    }
    totals.pes.combine(pe, kAdd);
    totals.busiest.combine(pe, kLargest);
    totals.time += end.time;
    largest(totals.arena_high_water, tls_[processor->index()]->arena().high_water());
    largest(totals.tcm_high_water, processor->tcm_high_water());
  }
  for (const LevelTotals& level : totals.levels) {
    COPRIME_CHECK(level.sent == level.received, "{} bytes were sent, {} received", level.sent, level.received);
  }
  COPRIME_CHECK(totals.busiest_link <= totals.end.time, "{} {}", totals.busiest_link, totals.end.time);
  return totals;
}

}  // namespace coprime::sim
