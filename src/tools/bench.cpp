#include "tools/bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/percentile.h"
#include "engine/generation.h"
#include "tools/plain_read.h"
#include "tools/ranks_report.h"

namespace coprime {
namespace {

double median(const std::vector<double>& values) { return percentile(values, 0.5); }

// As many as the ranks of this host compute with.
int threads_of_this_host(const Front& front) {
  int threads = 0;
  const auto here = static_cast<size_t>(std::max(front.plan().ranks() - front.options().remote.ranks, 1));
  for (const RankReady& rank : std::span(front.ranks()).first(here)) threads += rank.threads;
  return threads;
}

// The table of an untied embedding is read by rows, not by steps.
int64_t bytes_of_step(const Front& front) {
  int64_t bytes = 0;
  for (const RankReady& rank : front.ranks()) bytes += rank.step_bytes;
  return bytes;
}

}  // namespace

// All prompts, one after the other; then all sequences side by side.
BenchRun run_bench_round(Front& front, const BenchOptions& options) {
  const auto vocab = static_cast<uint64_t>(front.plan().shape().vocab);
  uint64_t state = 12345;
  const auto draw = [&] {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((state >> 33) % vocab);
  };
  const int64_t chunk = front.options().max_rows;
  BenchRun run;
  std::vector<int32_t> last(static_cast<size_t>(options.batch));
  StepBatch step;
  const int64_t begin_us = now_us();
  for (int sequence = 0; sequence < options.batch; ++sequence) {
    for (int64_t start = 0; start < options.prompt_tokens; start += chunk) {
      const int64_t rows = std::min<int64_t>(chunk, options.prompt_tokens - start);
      const bool ends = start + rows == options.prompt_tokens;
      step.sequences = {sequence_rows(front, sequence, start, rows, RowsKind::kPrefill)};
      if (ends) step.sequences[0].logits = {{static_cast<int32_t>(rows - 1), 1}};
      step.ids.resize(static_cast<size_t>(rows));
      std::ranges::generate(step.ids, draw);
      const int64_t left = options.prompt_tokens - start - rows;
      step.next_rows =
          static_cast<int32_t>(left > 0                       ? std::min(chunk, left)
                               : sequence + 1 < options.batch ? std::min<int64_t>(chunk, options.prompt_tokens)
                                                              : options.batch);
      const auto& logits = front.step(step);
      if (ends) last[static_cast<size_t>(sequence)] = logits[0].best.at(0).id;
    }
    if (sequence == 0) run.first_token_ms = static_cast<double>(now_us() - begin_us) / 1e3;
  }
  const int64_t prefilled_us = now_us();
  run.prefill_s = static_cast<double>(prefilled_us - begin_us) / 1e6;

  const WorldStatistics before = front.statistics();
  for (int64_t token = 0; token < options.decode_tokens; ++token) {
    const int64_t step_us = now_us();
    step.sequences.clear();
    for (int sequence = 0; sequence < options.batch; ++sequence) {
      step.sequences.push_back(sequence_rows(front, sequence, options.prompt_tokens + token, 1, RowsKind::kDecode));
      step.sequences.back().logits = {{0, 1}};
    }
    step.ids = last;
    step.next_rows = options.batch;
    const auto& logits = front.step(step);
    for (size_t sequence = 0; sequence < last.size(); ++sequence) last[sequence] = logits[sequence].best.at(0).id;
    run.step_ms.push_back(static_cast<double>(now_us() - step_us) / 1e3);
  }
  run.decode_s = static_cast<double>(now_us() - prefilled_us) / 1e6;
  const WorldStatistics& after = front.statistics();
  run.gate_share = static_cast<double>(after.gate_us - before.gate_us) /
                   static_cast<double>(std::max<int64_t>(after.compute_us - before.compute_us, 1));
  run.compute_ms = static_cast<double>(after.compute_us - before.compute_us) / 1e3 / options.decode_tokens;
  return run;
}

BenchFigures measure_bench(Front& front, const BenchOptions& options) {
  if (options.prompt_tokens + options.decode_tokens > front.options().context) {
    fail(ErrorKind::kUsage, "{} tokens of prompt and {} of decode, and the context holds {}: measure fewer",
         options.prompt_tokens, options.decode_tokens, front.options().context);
  }
  if (options.batch > front.options().sequences)
    fail(ErrorKind::kUsage, "{} sequences, and there is room for {}", options.batch, front.options().sequences);

  BenchFigures figures{.step_weight_bytes = bytes_of_step(front), .read_threads = threads_of_this_host(front)};
  PlainRead read(figures.step_weight_bytes, figures.read_threads);
  std::vector<double> reads, prefill, decode, first, gates, steps;
  const double prompts = static_cast<double>(options.batch) * options.prompt_tokens,
               decoded = static_cast<double>(options.batch) * options.decode_tokens;
  for (int round = 0; round <= options.repeat; ++round) {
    const double read_gb_s = read.gb_s();
    const BenchRun run = run_bench_round(front, options);
    if (round == 0) continue;  // warm-up
    reads.push_back(read_gb_s);
    prefill.push_back(prompts / run.prefill_s);
    decode.push_back(decoded / run.decode_s);
    first.push_back(run.first_token_ms);
    gates.push_back(run.gate_share);
    steps.insert(steps.end(), run.step_ms.begin(), run.step_ms.end());
  }
  figures.prefill_tok_s = median(prefill);
  figures.decode_tok_s = median(decode);
  figures.first_token_ms = median(first);
  figures.read_gb_s = median(reads);
  figures.gate_share = median(gates);
  figures.weights_gb_s = figures.decode_tok_s / options.batch * static_cast<double>(figures.step_weight_bytes) / 1e9;
  figures.step_p50_ms = median(steps);
  figures.step_p90_ms = percentile(steps, 0.9);
  figures.step_p99_ms = percentile(steps, 0.99);
  figures.step_max_ms = percentile(steps, 1);
  return figures;
}

std::string bench_text(const Front& front, const BenchOptions& options, const BenchFigures& figures, double start_ms) {
  std::string text = fmt::format("prefill   {:.0f} tokens/s, {} sequence{} of {} tokens; first token after {:.1f} ms\n",
                                 figures.prefill_tok_s, options.batch, options.batch == 1 ? "" : "s",
                                 options.prompt_tokens, figures.first_token_ms);
  text += fmt::format(
      "decode    {:.1f} tokens/s; a step {:.2f} ms at the median, p90 {:.2f}, p99 {:.2f}, longest {:.2f}\n",
      figures.decode_tok_s, figures.step_p50_ms, figures.step_p90_ms, figures.step_p99_ms, figures.step_max_ms);
  text += fmt::format(
      "memory    {:.1f} GB/s of weights, {:.2f} of a plain read of {:.1f} MB by {} thread{} ({:.1f} GB/s)\n",
      figures.weights_gb_s, figures.weights_gb_s / figures.read_gb_s,
      static_cast<double>(figures.step_weight_bytes) / 1e6, figures.read_threads, figures.read_threads == 1 ? "" : "s",
      figures.read_gb_s);
  text += fmt::format("gates     {} a step, {:.1f}% of the ranks' time\n", front.schedule().size(),
                      100 * figures.gate_share);
  text += fmt::format("start-up  {:.0f} ms\n", start_ms);
  for (size_t rank = 0; rank < front.ranks().size(); ++rank) {
    text += fmt::format("rank {:<4} {}\n", rank, rank_text(front.ranks()[rank]));
  }
  return text;
}

std::string bench_json(const Front& front, const BenchOptions& options, const BenchFigures& figures, double start_ms) {
  return nlohmann::json{{"prompt_tokens", options.prompt_tokens},
                        {"decode_tokens", options.decode_tokens},
                        {"batch", options.batch},
                        {"repeat", options.repeat},
                        {"prefill_tok_s", figures.prefill_tok_s},
                        {"decode_tok_s", figures.decode_tok_s},
                        {"first_token_ms", figures.first_token_ms},
                        {"weights_gb_s", figures.weights_gb_s},
                        {"read_gb_s", figures.read_gb_s},
                        {"read_threads", figures.read_threads},
                        {"step_weight_bytes", figures.step_weight_bytes},
                        {"gate_share", figures.gate_share},
                        {"step_ms",
                         {{"p50", figures.step_p50_ms},
                          {"p90", figures.step_p90_ms},
                          {"p99", figures.step_p99_ms},
                          {"max", figures.step_max_ms}}},
                        {"start_ms", start_ms},
                        {"links", front.links()},
                        {"link_notes", front.link_notes()},
                        {"ranks", ranks_json(front.ranks())}}
      .dump();
}

}  // namespace coprime
