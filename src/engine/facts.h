// What must be the same on every rank before the first gate, as named texts that the front compares one by one: a
// mismatch is told with both ranks, both values, and what to do.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "gate/schedule.h"
#include "geometry/shard_plan.h"

namespace coprime {

struct Fact {
  std::string name;    // "model files: hash of the headers"
  std::string value;   // compared and shown
  std::string advice;  // "give all ranks the same files"
};
using Facts = std::vector<Fact>;

// Of this program, the files that this rank reads, and what follows from them and from `settings` (a text that names
// each of the front's settings that reach the gates). Reads the first 4 KiB of every tensor; `progress` is called
// between them. Error(kModel) when a file cannot be read.
Facts collect_facts(const Checkpoint& checkpoint, const ShardPlan& plan, const GateSchedule& schedule,
                    const std::string& settings, const std::function<void()>& progress);

// Error(kModel) naming the first fact in which two holders differ: "rank 2 has ..., the front has ...".
void compare_facts(const std::string& one, const Facts& its, const std::string& other, const Facts& others);

}  // namespace coprime
