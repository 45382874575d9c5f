// Everything that a person can set, with its default: filled from flags, a file (--config) and COPRIME_* variables by
// one table (settings.cpp). Nothing below cli/ reads the environment.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "engine/front.h"

namespace coprime {

// Of the commands that start a world.
struct WorldSettings {
  std::string model;
  int ranks = 1, threads = 0, pad_for = 0, prefill_chunk = 256, gate_timeout_ms = 5000, port = 0;
  int64_t mlp_width = 0;
  std::string link = "shm", math = "f32", kv = "f32", isa = "best";
  bool exact = false, hash_gates = false, gate_profile = false, gate_trace = false;

  WorldOptions options() const;  // but for context and sequences, which depend on the request
};

struct GenerateSettings {
  std::optional<std::string> prompt, chat, prompt_file;
  std::optional<double> temperature, top_p, min_p;  // unset: generation_config.json
  std::optional<int> top_k;
  std::optional<uint64_t> seed;  // unset: random
  int64_t max_tokens = 0;        // 0: to the context's end
  std::vector<std::string> stops;
  std::string trace;  // file; empty: none
  bool stats = false, json = false;
};

struct LogitsSettings {
  std::string ids, out;
};

void add_world_flags(CLI::App& app, WorldSettings& settings);
void add_generate_flags(CLI::App& app, GenerateSettings& settings);
void add_logits_flags(CLI::App& app, LogitsSettings& settings);

}  // namespace coprime
