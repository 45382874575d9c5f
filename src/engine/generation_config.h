// generation_config.json: the model's own defaults for sampling, and the ids that end a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/sampler.h"

namespace coprime {

struct GenerationConfig {
  SamplingOptions sampling;  // greedy where the file says do_sample: false, or nothing
  std::vector<int32_t> eos;  // of generation_config.json, else of config.json
};

// Error(kModel) for a file that is there and is not what it should be.
GenerationConfig read_generation_config(const std::filesystem::path& directory);

}  // namespace coprime
