// What a decode step's gates cost beside a bare exchange of as many ranks around as much work, in one run: the question
// where there are more ranks than cores.
//
// N processes run decode steps of a model with no front; each learns its own processor time between two gates. Then the
// same processes pass as many gates of the same size with nothing between them but arithmetic of that time. Both take
// turns; the line gives medians of a step's wall time, and the ratio of what stands above the work shared out over the
// cores.
#include <sys/mman.h>
#include <sys/wait.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/clock.h"
#include "base/error.h"
#include "busy_work.h"
#include "device/cpu/cpu_device.h"
#include "gate/exchanges.h"
#include "model/decoder.h"

namespace coprime {
namespace {

constexpr int kMaxRounds = 32;

struct Options {
  std::string model = "models/mini-qwen35";
  int ranks = 3, rounds = 9, steps = 200;
};

struct Shared {
  double work_us[kMaxRanks];                        // processor time of one step's work
  double step_us[kMaxRounds], bare_us[kMaxRounds];  // rank 0's wall time of a step
};

// Counts the processor time that passes outside of publish() to wait().
class TimedExchange final : public Exchange {
 public:
  TimedExchange(std::unique_ptr<Exchange> next, double& work_us) : next_(std::move(next)), work_us_(work_us) {}
  int rank() const override { return next_->rank(); }
  int ranks() const override { return next_->ranks(); }
  std::span<std::byte> out(size_t bytes) override { return next_->out(bytes); }
  void publish(const GateEntry& entry, size_t bytes) override {
    if (timing_) work_us_ += cpu_us() - begin_us_;
    next_->publish(entry, bytes);
  }
  void scatter(const GateEntry& entry, std::span<const size_t> ends) override { next_->scatter(entry, ends); }
  std::span<const std::span<const std::byte>> wait() override {
    const auto views = next_->wait();
    if (timing_) begin_us_ = cpu_us();
    return views;
  }
  void release() override { next_->release(); }
  const char* link() const override { return next_->link(); }
  void time(bool on) {
    timing_ = on;
    begin_us_ = cpu_us();
  }

 private:
  std::unique_ptr<Exchange> next_;
  double& work_us_;
  double begin_us_ = 0;
  bool timing_ = false;
};

void run_rank(const Options& options, int rank, std::shared_ptr<const ShmRegion> region,
              std::shared_ptr<const ProgressPage> progress, Shared& shared) {
  const ShardPlan plan(read_model_shape(options.model), {.ranks = options.ranks});
  const auto device = make_cpu_device({.progress = &progress->counter(rank)});
  ModelWeights weights = load_weights(Checkpoint::open(options.model), plan, rank, *device);
  const GateSchedule schedule = make_decode_schedule(plan, 1);
  const ExchangeSettings settings{choose_wait_policy(usable_cores(), options.ranks, 1), 60'000};
  double work_us = 0;
  auto timed = std::make_unique<TimedExchange>(make_window_exchange(region, rank, progress, settings), work_us);
  TimedExchange& exchange = *timed;
  Communicator communicator(std::move(timed), schedule);
  const int pages = options.steps / kPageTokens + 1;
  Decoder decoder(plan, rank, *device, communicator, std::move(weights), {.max_rows = 1, .pages = pages, .slots = 1});

  StepBatch batch{.sequences = {{.kind = RowsKind::kDecode, .rows = 1, .state_out = 0, .logits = {{0, 1}}}},
                  .ids = {7}};
  for (int page = 0; page < pages; ++page) batch.sequences[0].pages.pages.push_back(page);
  StepResult result;
  const auto decode = [&] {
    const int64_t begin_us = now_us();
    for (int step = 0; step < options.steps; ++step) {
      batch.sequences[0].start = step;
      batch.sequences[0].state_in = step == 0 ? -1 : 0;
      decoder.step(batch, result);
    }
    return static_cast<double>(now_us() - begin_us) / options.steps;
  };
  decode();  // warm-up
  exchange.time(true);
  decode();
  exchange.time(false);
  shared.work_us[rank] = work_us / options.steps;

  const auto spins =
      static_cast<int64_t>(shared.work_us[rank] / static_cast<double>(schedule.size()) * work_steps_per_us());
  const auto bare = [&] {
    const int64_t begin_us = now_us();
    for (int gate = 0; gate < options.steps * static_cast<int>(schedule.size()); ++gate) {
      volatile float sink = work(spins);
      static_cast<void>(sink);
      exchange.out(static_cast<size_t>(schedule[0].row_bytes));
      exchange.publish(schedule[0], static_cast<size_t>(schedule[0].row_bytes));
      exchange.wait();
      exchange.release();
    }
    return static_cast<double>(now_us() - begin_us) / options.steps;
  };
  for (int round = 0; round < options.rounds; ++round) {
    const double step_us = decode(), bare_us = bare();
    if (rank == 0) shared.step_us[round] = step_us, shared.bare_us[round] = bare_us;
  }
}

double median(const double* values, int count) {
  std::vector<double> sorted(values, values + count);
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

int run_bench(const Options& options) {
  const ShardPlan plan(read_model_shape(options.model), {.ranks = options.ranks});
  const auto region = std::make_shared<const ShmRegion>(
      ShmRegion::create(options.ranks, largest_slot_bytes(make_decode_schedule(plan, 1))));
  const auto progress = std::make_shared<const ProgressPage>(ProgressPage::create(options.ranks));
  auto* shared =
      static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (shared == MAP_FAILED) fail(ErrorKind::kInternal, "no shared memory for the results");
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (::fork() != 0) continue;
    try {
      run_rank(options, rank, region, progress, *shared);
      ::_exit(0);
    } catch (const Error& error) {
      std::fprintf(stderr, "step_gates_bench: %s\n", error.what());
      ::_exit(1);
    }
  }
  bool good = true;
  for (int status = 0; ::wait(&status) > 0;) good = good && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!good) return 1;

  double total_work_us = 0, most_us = 0;
  for (int rank = 0; rank < options.ranks; ++rank) {
    total_work_us += shared->work_us[rank];
    most_us = std::max(most_us, shared->work_us[rank]);
  }
  const double floor_us = std::max(most_us, total_work_us / usable_cores());
  const double step_us = median(shared->step_us, options.rounds), bare_us = median(shared->bare_us, options.rounds);
  std::printf(
      "step_gates ranks=%d cores=%d work_us=%.0f (of all ranks) floor_us=%.0f step_us=%.0f bare_us=%.0f step/bare=%.2f "
      "gates/bare_exchange=%.2f\n",
      options.ranks, usable_cores(), total_work_us, floor_us, step_us, bare_us, step_us / bare_us,
      (step_us - floor_us) / (bare_us - floor_us));
  return 0;
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app{"a step's gates beside a bare exchange"};
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--ranks", options.ranks)->check(CLI::Range(2, 16))->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, coprime::kMaxRounds))->capture_default_str();
  app.add_option("--steps", options.steps)->check(CLI::Range(10, 2000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    return coprime::run_bench(options);
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "step_gates_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
