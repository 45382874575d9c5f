// The bare exchange of a gate: N processes, each publishing B bytes and waiting for all, with as much work around as is
// asked for.
//
// Prints one line a run: the time of an exchange as rank 0 sees it (median and 99th percentile), and the wall time of
// an iteration above that of its work. With more ranks than cores the work of an iteration takes at least ranks / cores
// as long.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "busy_work.h"
#include "gate/testing.h"

namespace coprime {
namespace {

struct Options {
  int ranks = 2, iterations = 20'000, spin_us = -1, yield_us = -1;
  size_t bytes = 16384;
  double work_us = 0;
  std::string link = "shm";
};

double nanoseconds() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Result {
  double p50_us, p99_us, iteration_us;
};

void run_rank(Exchange& exchange, const Options& options, int64_t steps, Result& result) {
  const std::vector<size_t> incoming(static_cast<size_t>(options.ranks), options.bytes);
  std::vector<double> times;
  times.reserve(static_cast<size_t>(options.iterations));
  volatile float sink = 0;
  double start = 0;
  const int warm_up = options.iterations / 10;
  for (int i = -warm_up; i < options.iterations; ++i) {
    if (i == 0) start = nanoseconds();
    if (steps > 0) sink = sink + work(steps);
    const double before = nanoseconds();
    exchange.out(options.bytes)[0] = static_cast<std::byte>(i);
    exchange.publish(0, options.bytes, incoming);
    exchange.wait();
    exchange.release();
    if (i >= 0) times.push_back((nanoseconds() - before) / 1000);
  }
  const double end = nanoseconds();
  std::ranges::sort(times);
  result = {times[times.size() / 2], times[times.size() * 99 / 100], (end - start) / 1000 / options.iterations};
}

void run(const Options& options) {
  const testing::Link link = options.link == "tcp" ? testing::Link::kTcp : testing::Link::kShm;
  const testing::TestWorld world(link, options.ranks, options.bytes);
  ExchangeSettings settings = world.settings();
  if (options.spin_us >= 0) settings.wait.spin_us = options.spin_us;
  if (options.yield_us >= 0) settings.wait.yield_us = options.yield_us;
  const double rate = work_steps_per_us();
  const auto steps = static_cast<int64_t>(std::llround(options.work_us * rate));

  auto* results = static_cast<Result*>(
      ::mmap(nullptr, sizeof(Result) * kMaxRanks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (results == MAP_FAILED) fail(ErrorKind::kInternal, "no memory for the results");
  const std::vector<int> statuses = testing::run_processes(options.ranks, [&](int rank) {
    const std::unique_ptr<Exchange> exchange = world.join(rank, settings);
    run_rank(*exchange, options, steps, results[rank]);
    return 0;
  });
  if (std::ranges::count(statuses, 0) != options.ranks) fail(ErrorKind::kLink, "a rank failed");
  const double share = std::max(1.0, static_cast<double>(options.ranks) / usable_cores());
  std::printf(
      "gate_bench link=%s ranks=%d bytes=%zu work_us=%.1f spin_us=%lld yield_us=%lld cores=%d p50_us=%.2f p99_us=%.2f "
      "iteration_us=%.2f above_work_us=%.2f\n",
      options.link.c_str(), options.ranks, options.bytes, options.work_us,
      static_cast<long long>(settings.wait.spin_us), static_cast<long long>(settings.wait.yield_us), usable_cores(),
      results[0].p50_us, results[0].p99_us, results[0].iteration_us, results[0].iteration_us - options.work_us * share);
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app("Times the bare exchange of a gate between processes of this host.");
  app.add_option("--ranks", options.ranks)->check(CLI::Range(1, coprime::kMaxRanks));
  app.add_option("--bytes", options.bytes, "published by each rank")->check(CLI::Range(1, 1 << 30));
  app.add_option("--link", options.link)->check(CLI::IsMember({"shm", "tcp"}));
  app.add_option("--iterations", options.iterations)->check(CLI::Range(100, 100'000'000));
  app.add_option("--work-us", options.work_us, "computation between two exchanges, on an undisturbed core")
      ->check(CLI::Range(0.0, 1e6));
  app.add_option("--spin-us", options.spin_us, "instead of the policy's own");
  app.add_option("--yield-us", options.yield_us, "instead of the policy's own");
  CLI11_PARSE(app, argc, argv);
  try {
    coprime::run(options);
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "gate_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
