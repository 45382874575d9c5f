#include "collective/gate_order.h"

#include <fmt/format.h>

#include "base/check.h"

namespace coprime {

GateOrder::GateOrder(const GateSchedule& schedule) : schedule_(schedule), next_(static_cast<int>(schedule.size())) {}

const GateEntry& GateOrder::gate(int entry) const {
  COPRIME_CHECK(entry >= 0 && entry < entries(), "gate {} of {}", entry, entries());
  return schedule_[static_cast<size_t>(entry)];
}

std::string GateOrder::begin_step() {
  if (next_ != 0 && next_ != entries())
    return fmt::format("gate order broke: a step begins where {} of the last one is still to come",
                       gate_text(next_gate()));
  next_ = 0;
  rows_ = -1;
  return {};
}

std::string GateOrder::ask_slot(int entry, int rows) {
  const GateEntry& asked = gate(entry);
  if (entry != next_)
    return fmt::format("gate order broke: {} comes where {} is next", gate_text(asked),
                       next_ == entries() ? "a new step" : gate_text(next_gate()));
  COPRIME_CHECK(rows >= 0 && rows <= asked.max_rows, "{}: {} rows of at most {}", gate_text(asked), rows,
                asked.max_rows);
  rows_ = rows;
  return {};
}

std::string GateOrder::begin_gate(int entry, int rows) const {
  if (entry == next_ && rows == rows_) return {};
  return fmt::format("gate order broke: entry {} with {} rows comes after the slot of entry {} with {}", entry, rows,
                     next_, rows_);
}

void GateOrder::finish_gate() {
  ++next_;
  rows_ = -1;
}

}  // namespace coprime
