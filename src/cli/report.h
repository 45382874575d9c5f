// What `coprime generate` tells about its run: a table for a person, an object for a program.
#pragma once

#include <string>

#include "engine/front.h"
#include "engine/generation.h"

namespace coprime {

struct GenerateReport {
  const Front& front;
  const Generation& generation;
  const GenerationRequest& request;
  const std::string& text;
  int64_t start_us;  // from the start of the program to ranks that are ready

  double tokens_per_second() const;
  double gate_share() const;  // of the ranks' time in steps

  std::string table() const;
  std::string json() const;
};

}  // namespace coprime
