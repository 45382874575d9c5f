// coprime bench: measures a world, and prints a table or one JSON object.
#include "tools/bench.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/outputs.h"

namespace coprime {
void run_bench(const WorldSettings& world, const BenchSettings& settings) {
  const int64_t begin_us = now_us();
  WorldOptions options = world.options();
  options.context = int64_t{settings.prompt_tokens} + settings.decode_tokens;
  options.sequences = settings.batch;
  options.max_rows = std::max(std::min(options.max_rows, settings.prompt_tokens), settings.batch);
  const ModelShape shape = read_model_shape(options.model);
  if (options.context > shape.max_positions) {
    fail(ErrorKind::kUsage, "{} tokens of prompt and {} of decode, and the model's context holds {}: measure fewer",
         settings.prompt_tokens, settings.decode_tokens, shape.max_positions);
  }
  Front front(options);
  const double start_ms = static_cast<double>(now_us() - begin_us) / 1e3;
  const BenchOptions measured{.prompt_tokens = settings.prompt_tokens,
                              .decode_tokens = settings.decode_tokens,
                              .batch = settings.batch,
                              .repeat = settings.repeat};
  const BenchFigures figures = measure_bench(front, measured);
  const std::string text = settings.json ? bench_json(front, measured, figures, start_ms) + "\n"
                                         : bench_text(front, measured, figures, start_ms);
  print(text);
}

}  // namespace coprime
