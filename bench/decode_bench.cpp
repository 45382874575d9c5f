// Decode of a model beside the limits of the same run: the plain read of as many bytes on one thread, and between rank
// counts.
//
// Rounds of every configuration take turns, so that a machine's drift meets all; each line gives medians over the
// rounds.
//   read     GB/s of one thread that sums as many bytes as a step reads, again and again
//   decode   tokens/s, GB/s of weights, share of the ranks' time in gates, and the ratio to the first configuration
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "engine/generation.h"
#include "tools/plain_read.h"

namespace coprime {
namespace {

struct Options {
  std::string model = "models/mini-qwen35", link = "shm";
  std::vector<int> ranks{1, 2};
  int threads = 1, rounds = 9, tokens = 200;
  std::string program = "/proc/self/exe";
};

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

double read_gb_s(std::span<const std::byte> bytes) {
  constexpr int kPasses = 20;
  const int64_t begin_us = now_us();
  uint64_t total = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    asm volatile("" ::: "memory");  // every pass reads again
    total ^= read_bytes(bytes.data(), bytes.size());
  }
  volatile uint64_t sink = total;
  static_cast<void>(sink);
  return static_cast<double>(bytes.size()) * kPasses / static_cast<double>(now_us() - begin_us) / 1e3;
}

struct Run {
  std::unique_ptr<Front> front;
  double step_bytes = 0;  // read by all ranks in a step: all weights but the embedding's table
  std::vector<double> tokens_per_s, gate_share, front_share;
};

Run start(const Options& options, int ranks) {
  WorldOptions world;
  world.model = options.model;
  world.plan.ranks = ranks;
  world.link = options.link == "tcp" ? Link::kTcp : Link::kShm;
  world.threads = options.threads;
  world.context = options.tokens + 8;
  world.launch.program = options.program;
  Run run{.front = std::make_unique<Front>(world)};
  const ModelShape& shape = run.front->plan().shape();
  for (const RankReady& rank : run.front->ranks()) run.step_bytes += static_cast<double>(rank.weight_bytes);
  if (!shape.tied_head) run.step_bytes -= static_cast<double>(shape.vocab * shape.hidden * 2);
  return run;
}

void decode(const Options& options, Run& run) {
  const WorldStatistics before = run.front->statistics();
  const Generation generation = generate(*run.front, {.prompt = {1, 2, 3, 4}, .max_tokens = options.tokens});
  const WorldStatistics& after = run.front->statistics();
  run.tokens_per_s.push_back(static_cast<double>(generation.decode_steps) * 1e6 /
                             static_cast<double>(generation.decode_us));
  const auto step_us = static_cast<double>(after.step_us - before.step_us);
  run.front_share.push_back(1 - static_cast<double>(after.compute_us - before.compute_us) / step_us);
  run.gate_share.push_back(static_cast<double>(after.gate_us - before.gate_us) /
                           static_cast<double>(after.compute_us - before.compute_us));
}

void run_bench(const Options& options) {
  std::vector<Run> runs;
  for (int ranks : options.ranks) runs.push_back(start(options, ranks));
  const std::vector<std::byte> bytes(static_cast<size_t>(runs[0].step_bytes), std::byte{1});
  std::vector<double> reads;
  std::vector<std::vector<double>> ratios(runs.size());
  for (int round = 0; round <= options.rounds; ++round) {
    reads.push_back(read_gb_s(bytes));
    for (Run& run : runs) decode(options, run);
    if (round == 0) {  // warm-up
      reads.clear();
      for (Run& run : runs) run.tokens_per_s.clear(), run.gate_share.clear(), run.front_share.clear();
      continue;
    }
    for (size_t i = 0; i < runs.size(); ++i)
      ratios[i].push_back(runs[i].tokens_per_s.back() / runs[0].tokens_per_s.back());
  }
  std::printf("read %.1f MB: %.1f GB/s on one thread\n", runs[0].step_bytes / 1e6, median(reads));
  for (size_t i = 0; i < runs.size(); ++i) {
    const double tokens = median(runs[i].tokens_per_s), gb_s = tokens * runs[i].step_bytes / 1e9;
    std::printf(
        "decode %d ranks x %d threads over %s: %.0f tokens/s, %.1f GB/s (%.2f of one thread's read), gates %.1f%%, "
        "front %.1f%% of the step, %.2f times %d rank(s)\n",
        options.ranks[i], options.threads, options.link.c_str(), tokens, gb_s, gb_s / median(reads),
        100 * median(runs[i].gate_share), 100 * median(runs[i].front_share), median(ratios[i]), options.ranks[0]);
  }
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  if (argc >= 2 && std::string_view(argv[1]) == "rank") return coprime::rank_process_main();
  coprime::Options options;
  CLI::App app{"decode speed beside the machine's limits"};
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--ranks", options.ranks, "configurations, compared with the first")->delimiter(',');
  app.add_option("--threads", options.threads, "a rank")->capture_default_str();
  app.add_option("--link", options.link)->check(CLI::IsMember({"shm", "tcp"}))->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000))->capture_default_str();
  app.add_option("--tokens", options.tokens)->check(CLI::Range(8, 4000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    coprime::run_bench(options);
    return 0;
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "decode_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
