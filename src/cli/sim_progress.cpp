#include "cli/sim_progress.h"

#include <fmt/format.h>

namespace coprime {
namespace {

constexpr int64_t kQuietUs = 2'000'000;  // a shorter wait needs no line

}  // namespace

void SimProgress::within_runs(size_t run, size_t runs, int64_t time_us) {
  show(fmt::format("run {} of {}", run + 1, runs), time_us);
}

void SimProgress::within_run(double simulated_us, uint64_t events, int64_t time_us) {
  show(fmt::format("{:.1f} us simulated, {:.1f} M events", simulated_us, static_cast<double>(events) / 1e6), time_us);
}

void SimProgress::show(const std::string& text, int64_t time_us) {
  const int64_t so_far_us = time_us - begin_us_;
  if (so_far_us >= kQuietUs) line_.show(fmt::format("{}, {} s", text, so_far_us / 1'000'000), time_us);
}

}  // namespace coprime
