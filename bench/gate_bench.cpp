// A gate beside the bare exchange of as many bytes, in one run: N processes, each pinned to a core of its own while
// there are enough, publish a vector, wait, and add in rank order; then the same by tools/bare_exchange.h, which knows
// nothing of gates. Over shared memory both copy the vector into a slot first; over TCP both send it from where it
// lies. They take turns; the line gives the median over the rounds of each, the median of the rounds' ratios, and the
// fastest tenth of the rounds, which other programs on the machine disturbed least.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/percentile.h"
#include "busy_work.h"
#include "gate/testing.h"
#include "loopback_mesh.h"
#include "pinned.h"
#include "tools/bare_exchange.h"

namespace coprime {
namespace {

constexpr int kMaxRounds = 10'000;

struct Options {
  int ranks = 2, rounds = 1000, exchanges = 20;
  size_t bytes = 16384;
  double work_us = 0;
  std::string link = "shm";
};

struct Rounds {
  double gate_us[kMaxRounds], bare_us[kMaxRounds];  // of one exchange, on this rank
};

// Microseconds of one of the `count` calls of exchange().
template <class Fn>
double time_us(int count, int64_t work_steps, const Fn& exchange) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) {
    if (work_steps > 0) {
      volatile float sink = work(work_steps);
      static_cast<void>(sink);
    }
    exchange();
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count() / count;
}

void run_rank(const Options& options, Exchange& exchange, BareExchange& bare, int64_t work_steps, Rounds& rounds) {
  const size_t count = options.bytes / sizeof(float);
  const std::vector<float> in(count, static_cast<float>(exchange.rank() + 1));
  std::vector<float> sum(count);
  const std::vector<size_t> incoming(static_cast<size_t>(options.ranks), options.bytes);
  int unwritten = options.link == "tcp" ? 2 : -1;  // slots; -1: they are written every time
  const auto gate = [&] {
    float* const out = reinterpret_cast<float*>(exchange.out(options.bytes).data());
    if (unwritten != 0) std::memcpy(out, in.data(), options.bytes);
    if (unwritten > 0) --unwritten;
    exchange.publish(0, options.bytes, incoming);
    std::array<const float*, kMaxRanks> terms;
    const auto views = exchange.wait();
    for (size_t rank = 0; rank < views.size(); ++rank) terms[rank] = reinterpret_cast<const float*>(views[rank].data());
    add_in_rank_order({terms.data(), views.size()}, sum.data(), count);
    exchange.release();
  };
  const auto floor = [&] { bare.run(in.data(), sum.data(), count); };
  for (int round = -2; round < options.rounds; ++round) {  // two to warm up
    const double gate_us = time_us(options.exchanges, work_steps, gate);
    const double bare_us = time_us(options.exchanges, work_steps, floor);
    if (round >= 0) rounds.gate_us[round] = gate_us, rounds.bare_us[round] = bare_us;
  }
  const float expected = static_cast<float>(options.ranks * (options.ranks + 1)) / 2;
  if (std::ranges::count(sum, expected) != static_cast<ptrdiff_t>(count)) fail(ErrorKind::kInternal, "a wrong sum");
}

void run(const Options& options) {
  const testing::Link link = options.link == "tcp" ? testing::Link::kTcp : testing::Link::kShm;
  const testing::TestWorld world(link, options.ranks, options.bytes);
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(options.ranks, options.bytes));
  auto mesh = loopback_mesh(options.ranks);
  const auto work_steps = static_cast<int64_t>(std::llround(options.work_us * work_steps_per_us()));
  auto* rounds = static_cast<Rounds*>(
      ::mmap(nullptr, sizeof(Rounds) * kMaxRanks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (rounds == MAP_FAILED) fail(ErrorKind::kInternal, "no memory for the results");
  const std::vector<int> statuses = testing::run_processes(options.ranks, [&](int rank) {
    const ExchangeSettings settings = world.settings();  // before this rank has one core only
    const bool own_core = usable_cores() >= options.ranks;
    pin_rank(rank, options.ranks);
    const std::unique_ptr<Exchange> exchange = world.join(rank, settings);
    BareLinks links = bare_window(region, rank);
    if (link == testing::Link::kTcp)
      links = {.rank = rank, .ranks = options.ranks, .sockets = std::move(mesh[static_cast<size_t>(rank)])};
    BareExchange bare(std::move(links), options.bytes, own_core);
    run_rank(options, *exchange, bare, work_steps, rounds[rank]);
    return 0;
  });
  if (std::ranges::count(statuses, 0) != options.ranks) fail(ErrorKind::kLink, "a rank failed");
  std::vector<double> gate, bare, ratios;
  for (int round = 0; round < options.rounds; ++round) {
    gate.push_back(rounds[0].gate_us[round]);
    bare.push_back(rounds[0].bare_us[round]);
    ratios.push_back(gate.back() / bare.back());
  }
  std::printf(
      "gate_bench link=%s ranks=%d cores=%d bytes=%zu work_us=%.1f gate_us=%.3f bare_us=%.3f ratio=%.3f "
      "fastest_tenth: gate_us=%.3f bare_us=%.3f ratio=%.3f\n",
      options.link.c_str(), options.ranks, usable_cores(), options.bytes, options.work_us, percentile(gate, 0.5),
      percentile(bare, 0.5), percentile(ratios, 0.5), percentile(gate, 0.1), percentile(bare, 0.1),
      percentile(gate, 0.1) / percentile(bare, 0.1));
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app("Times a gate beside the bare exchange of as many bytes.");
  app.add_option("--ranks", options.ranks)->check(CLI::Range(2, coprime::kMaxRanks))->capture_default_str();
  app.add_option("--bytes", options.bytes, "published by each rank, in whole floats")
      ->check(CLI::Range(4, 1 << 26))
      ->capture_default_str();
  app.add_option("--link", options.link)->check(CLI::IsMember({"shm", "tcp"}))->capture_default_str();
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, coprime::kMaxRounds))->capture_default_str();
  app.add_option("--exchanges", options.exchanges, "of a round")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--work-us", options.work_us, "computation before each exchange, on an undisturbed core")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  options.bytes = options.bytes / sizeof(float) * sizeof(float);
  try {
    coprime::run(options);
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "gate_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
