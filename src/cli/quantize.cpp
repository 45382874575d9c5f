// coprime quantize: a checkpoint's matrices in MXFP4 or FP8, in a new folder.
#include "tools/quantize.h"

#include "base/error.h"
#include "base/interruption.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/progress_line.h"

namespace coprime {
namespace {

QuantizeFormat format_of(const std::string& name) {
  return name == "mxfp4"       ? QuantizeFormat::kMxfp4
         : name == "fp8-block" ? QuantizeFormat::kFp8Block
                               : QuantizeFormat::kFp8Channel;
}

double gigabytes(uint64_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

void run_quantize(const QuantizeSettings& settings) {
  const Interruption interruption;
  ProgressLine line(terminal_write());
  const QuantizeReport report =
      quantize_model({.model = settings.model, .out = settings.out, .format = format_of(settings.to)},
                     [&](uint64_t done, uint64_t total) {
                       interruption.check();
                       show_percent(line, done, total);
                     });
  line.clear();
  print(fmt::format("{}: {} matrices in {}, {} tensors as they were; {:.3f} GB, before {:.3f} GB\n", settings.out,
                    report.quantised, settings.to, report.kept, gigabytes(report.bytes_after),
                    gigabytes(report.bytes_before)));
}

}  // namespace coprime
