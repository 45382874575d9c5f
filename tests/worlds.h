// Helpers of the tests that run whole worlds: the golden models with their outside answers, and worlds of threads.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/front.h"
#include "engine/generation.h"

namespace coprime {

std::filesystem::path golden_directory(const std::string& name);  // of tests/goldens, or models/mini-qwen35

// A case of a golden file: ids [batch, length], the logits that transformers computed, and greedy continuations.
struct GoldenCase {
  int64_t batch = 1, length = 0;
  std::vector<int32_t> ids;
  std::vector<float> logits;  // [batch, length, vocab]
};
struct GoldenGreedy {
  std::vector<int32_t> prompt, continuation;
};
struct Golden {
  std::string name;
  std::filesystem::path directory;
  std::vector<GoldenCase> cases;
  std::vector<GoldenGreedy> greedy;
  std::vector<int32_t> eos;  // that end its greedy continuations
};

// A folder of tests/goldens, or "mini-qwen35".
Golden read_golden(const std::string& name);

// Options of a world whose ranks are threads of the test.
WorldOptions thread_world(const Golden& golden, int ranks);

float largest_difference(std::span<const float> a, std::span<const float> b);

// Teacher-forced logits of one case in a new world.
std::vector<float> logits_of(const WorldOptions& options, const GoldenCase& golden);

}  // namespace coprime
