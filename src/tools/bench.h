// Speed of a world as its user meets it: prefill and decode in tokens a second, beside the plain read of as many bytes
// as a step of decode reads, by as many threads, in the same run and in turns.
//
// The prompt is made of random ids: the time of a step does not depend on them. With a batch, all sequences have
// prompts of one length, are prefilled one after the other, and then decode side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/front.h"

namespace coprime {

struct BenchOptions {
  int prompt_tokens = 512, decode_tokens = 128;  // of each sequence; at least 1
  int batch = 1;
  int repeat = 3;
};

struct BenchFigures {         // medians over the repetitions, but for the steps', which are of all of them
  double prefill_tok_s = 0;   // of all sequences
  double decode_tok_s = 0;    // likewise
  double first_token_ms = 0;  // of the first sequence
  double weights_gb_s = 0;    // of packed weights that steps of decode read, by all ranks
  double read_gb_s = 0;       // of the plain read
  int64_t step_weight_bytes = 0;
  int read_threads = 1;   // of the plain read: as many as the ranks of this host compute with
  double gate_share = 0;  // of the ranks' time in steps of decode
  double step_p50_ms = 0, step_p90_ms = 0, step_p99_ms = 0, step_max_ms = 0;  // of decode
};

// One round: all prompts, one after the other, then all sequences side by side.
struct BenchRun {
  double prefill_s = 0, decode_s = 0, first_token_ms = 0;
  double gate_share = 0;  // of the ranks' time in steps of decode
  double compute_ms = 0;  // of a step of decode, the mean of the ranks, gates included
  std::vector<double> step_ms;
};
BenchRun run_bench_round(Front& front, const BenchOptions& options);

// Error(kUsage) when prompt and decode do not fit the front's context, or the batch its sequences.
BenchFigures measure_bench(Front& front, const BenchOptions& options);

std::string bench_text(const Front& front, const BenchOptions& options, const BenchFigures& figures, double start_ms);
std::string bench_json(const Front& front, const BenchOptions& options, const BenchFigures& figures, double start_ms);

}  // namespace coprime
