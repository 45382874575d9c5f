#include "sim/machine.h"

#include <map>

#include "attention/cube_groups.h"
#include "base/check.h"
#include "base/error.h"

namespace coprime::sim {

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

Machine::~Machine() = default;

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
  const std::string name = fmt::format("{} on SIP {} CUBE {} PE {}", kernel, place.sip, place.cube, place.pe);
  tls_[index] = std::make_unique<tl::Tl<Processor>>(processor, name, context_.chip.pe.arena_bytes, hbm);
  processor.launch(make(*tls_[index]), *tls_[index]);
}

MachineTotals Machine::run() {
  network_.begin(undeclared_ == 0);
  EventQueue& events = context_.events;
  while (!events.empty()) {
    const Event event = events.pop();
    context_.now = event.time;
    if (dispatch(event)) ++events_[static_cast<size_t>(event.kind())];
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

// Who waits for whom: a line a PE, and the cycle if there is one.
void Machine::report_deadlock() const {
  std::map<uint32_t, uint32_t> waits_for;
  std::string lines;
  const auto name = [&](uint32_t index) {
    const Place& place = processors_[index]->place();
    return fmt::format("SIP {} CUBE {} PE {}", place.sip, place.cube, place.pe);
  };
  size_t blocked = 0;
  for (const auto& processor : processors_) {
    const tl::Command* command = processor->blocked();
    if (!processor->launched() || processor->ended() || !command) continue;
    const uint32_t index = processor->index();
    std::string what = fmt::format("its own engines ({})", tl::name_of(command->op));
    const int stuck = network_.stuck_on(index);
    if (command->op == tl::Op::kRecv || command->op == tl::Op::kWait) {
      waits_for[index] = network_.sender_of(index, command->peer);
      what = "a message from " + name(waits_for[index]);
    } else if (stuck >= 0) {
      waits_for[index] = static_cast<uint32_t>(stuck);
      what = "room in the queue to " + name(waits_for[index]);
    }
    if (++blocked <= 8) lines += fmt::format("; {}, line {}, waits for {}", name(index), command->line, what);
  }
  // A PE whose message is stuck waits for its receiver, too: follow from each PE until one comes again.
  for (const auto& [first, unused] : waits_for) {
    std::vector<uint32_t> path;
    uint32_t at = first;
    while (waits_for.contains(at) && std::ranges::find(path, at) == path.end()) path.push_back(at), at = waits_for[at];
    const auto begin = std::ranges::find(path, at);
    if (begin == path.end()) continue;
    lines += "; a cycle:";
    for (auto place = begin; place != path.end(); ++place) lines += fmt::format(" {} ->", name(*place));
    lines += " " + name(at);
    break;
  }
  fail(ErrorKind::kUsage, "{} PEs wait for what will never come at tick {}{}", blocked, context_.now, lines);
}

MachineTotals Machine::totals() const {
  MachineTotals totals;
  totals.events = events_;
  totals.levels = network_.totals();
  totals.busiest_link = network_.busiest_link();
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
