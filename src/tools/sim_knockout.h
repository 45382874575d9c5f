// The same run again and again, each time with one resource made ideal: what a better one could gain at most.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/run.h"

namespace coprime {

struct Knockout {
  std::string_view resource;  // "none" first: the chip as it is
  std::string_view ideal;     // what was changed
  sim::Tick ticks = 0;
};

// progress: called before each run and within, with what is done of how many.
std::vector<Knockout> run_knockouts(const sim::Chip& chip, const sim::RunSpec& spec,
                                    const std::function<void(size_t run, size_t runs)>& progress = {});
std::string knockout_table(const std::vector<Knockout>& knockouts);

}  // namespace coprime
