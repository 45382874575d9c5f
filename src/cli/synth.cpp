// coprime synth: a checkpoint with random weights, of any shape and format.
#include "tools/synth.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/interruption.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/progress_line.h"
#include "transport/wait_policy.h"

namespace coprime {
namespace {

SynthFormat format_of(const std::string& name) {
  if (name == "f32") return SynthFormat::kF32;
  if (name == "quark-mxfp4") return SynthFormat::kQuarkMxfp4;
  if (name == "fp8-block") return SynthFormat::kFp8Block;
  if (name == "fp8-channel") return SynthFormat::kFp8Channel;
  return SynthFormat::kBf16;
}

}  // namespace

void run_synth(const SynthSettings& settings) {
  const int64_t begin_us = now_us();
  const Interruption interruption;
  ProgressLine line(terminal_write());
  const SynthReport report = make_checkpoint({.source = settings.config,
                                              .out = settings.out,
                                              .options = {format_of(settings.format), settings.bf16_mtp},
                                              .layers = settings.layers,
                                              .seed = settings.seed,
                                              .headers_only = settings.headers_only,
                                              .threads = usable_cores(),
                                              .progress = [&](uint64_t done, uint64_t total) {
                                                interruption.check();
                                                show_percent(line, done, total);
                                              }});
  line.clear();
  const double seconds = static_cast<double>(now_us() - begin_us) / 1e6,
               gigabytes = static_cast<double>(report.bytes) / 1e9;
  std::string text = fmt::format("{}: {} tensors in {} file{}, {:.2f} GB", settings.out, report.tensors, report.files,
                                 report.files == 1 ? "" : "s", gigabytes);
  text += settings.headers_only ? ", headers only\n"
                                : fmt::format(", {:.1f} s, {:.2f} GB/s\n", seconds, gigabytes / seconds);
  if (!report.tokenizer)
    text +=
        "It has no tokenizer: bench, logits, plan and check need none; put a tokenizer.json there to generate text.\n";
  print(text);
}

}  // namespace coprime
