// config.json, and the plans and matching rules that follow from a shape that it accepts.
#include "fuzz.h"
#include "geometry/shard_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  return fuzz(ErrorKind::kModel, [&] {
    const ModelShape shape = parse_model_shape(text_of(data, size), "config.json");
    rope_frequencies(shape.rope);
    for (const int ranks : {1, 3, 16}) {
      const ShardPlan plan(shape, {.ranks = ranks});
      for (const Rule& rule : plan.rules()) {
        for (const int rank : {0, ranks - 1}) {
          if (plan.row_map(rule, rank).real_count() > plan.row_map(rule, rank).extent) std::abort();
          plan.column_map(rule, rank);
        }
      }
    }
  });
}
