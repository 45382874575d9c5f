// The simulator's speed: events a second of one core's own time, for the decode layer of a given context on all SIPs,
// by events alone; and, with --forward, how long it takes where loops that repeat themselves are accounted for at once.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "machine_limits.h"
#include "sim/run.h"

namespace coprime {
namespace {

struct Case {
  const char* name;
  tl::DecodeVariant variant;
};
constexpr Case kCases[] = {{"opt1", tl::DecodeVariant::kOpt1},
                           {"opt3", tl::DecodeVariant::kOpt3},
                           {"opt3v", tl::DecodeVariant::kOpt3v},
                           {"opt2", tl::DecodeVariant::kOpt2}};

double peak_gib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / (1 << 20);
}

void run_case(const Case& one, int64_t context, bool log, bool data, bool forward) {
  sim::OpLog rows;
  sim::RunSpec spec;
  spec.variant = one.variant, spec.context = context;
  spec.forward = forward;
  if (log) spec.log = &rows;
  if (data) spec.inputs = std::make_shared<sim::CounterInputs>();
  const double begin = seconds(1);
  const sim::RunResult result = sim::run(sim::ahbm_chip(), spec);
  const double time = seconds(1) - begin;
  const auto events = static_cast<double>(result.events());
  std::printf(
      "sim_bench: decode %s, %lld tokens, %lld PEs%s%s: %.3f s, %.2f M events, %.2f M events/s, %llu ticks, %.2f GiB "
      "at most\n",
      one.name, static_cast<long long>(context), static_cast<long long>(result.pes), log ? ", op_log" : "",
      data ? ", data" : "", time, events / 1e6, events / 1e6 / time, static_cast<unsigned long long>(result.ticks),
      peak_gib());
  std::printf(" ");
  for (size_t kind = 0; kind < sim::kEventKinds; ++kind) {
    if (const uint64_t count = result.totals.events[kind]) {
      std::printf(" %s %llu", sim::kEventKindNames[kind].data(), static_cast<unsigned long long>(count));
    }
  }
  if (log) std::printf("; %zu rows", rows.size());
  if (forward) {
    std::printf("; %.1f %% of the PEs' time accounted for at once",
                100 * static_cast<double>(result.totals.pes.forwarded) / static_cast<double>(result.totals.time));
  }
  std::printf("\n");
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  CLI::App app{"The simulator's events a second"};
  int64_t context = 1 << 20;
  std::string variant;
  bool log = false, data = false, forward = false;
  app.add_option("--context", context, "tokens")->capture_default_str();
  app.add_option("--variant", variant, "opt1, opt3, opt3v or opt2; all of them by default");
  app.add_flag("--oplog", log, "keep the op_log's rows");
  app.add_flag("--data", data, "compute, too");
  app.add_flag("--forward", forward, "account for loops that repeat themselves at once");
  CLI11_PARSE(app, argc, argv);
  for (const coprime::Case& one : coprime::kCases) {
    if (variant.empty() || variant == one.name) coprime::run_case(one, context, log, data, forward);
  }
  return 0;
}
