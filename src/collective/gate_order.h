// The order of a step's gates, that of the schedule: a slot is asked for, then its gate runs with as many rows.
#pragma once

#include <string>

#include "gate/schedule.h"

namespace coprime {

class GateOrder {
 public:
  // Between two steps. The schedule must outlive this.
  explicit GateOrder(const GateSchedule& schedule);

  const GateEntry& gate(int entry) const;  // of the schedule, checked to be one
  const GateEntry& next_gate() const { return gate(next_); }
  int next() const { return next_; }

  // Each says how the order broke, "gate order broke: ...", and changes nothing then; else it is empty.
  std::string begin_step();
  std::string ask_slot(int entry, int rows);
  std::string begin_gate(int entry, int rows) const;
  void finish_gate();

 private:
  int entries() const { return static_cast<int>(schedule_.size()); }

  const GateSchedule& schedule_;
  int next_;       // entries() between steps
  int rows_ = -1;  // of the next gate's slot; -1: not asked for yet
};

}  // namespace coprime
