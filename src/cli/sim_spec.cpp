#include "cli/sim_spec.h"

#include "sim/chip_file.h"
#include "tools/sim_sweep.h"

namespace coprime {

sim::Chip sim_chip(const SimSettings& settings) {
  return settings.chip.empty() ? sim::ahbm_chip() : sim::read_chip(settings.chip).chip;
}

sim::RunSpec sim_spec(const SimSettings& settings) {
  sim::RunSpec spec;
  spec.cubes = settings.cubes, spec.pes = settings.pes;
  spec.tile = settings.tile, spec.kv_heads = settings.kv_heads;
  spec.rows = settings.rows, spec.d = settings.d;
  spec.query_rows = settings.query_rows, spec.kv_per_cube = settings.kv_per_cube;
  sim::Chip none;
  set_swept("kernel", settings.kernel, none, spec);
  set_swept("query-begin", settings.query_begin, none, spec);
  if (!settings.query_end.empty()) set_swept("query-end", settings.query_end, none, spec);
  set_swept("variant", settings.variant, none, spec);
  set_swept("context", settings.context, none, spec);
  set_swept("within", settings.within, none, spec);
  set_swept("across", settings.across, none, spec);
  return spec;
}

std::string sim_title(const SimSettings& settings, const sim::RunSpec& spec) {
  const bool decode = settings.kernel == "decode" || settings.kernel == "decode-short";
  return fmt::format("{}{}: {} tokens, {} KV heads, C = {}, P = {}, tiles of {}", settings.kernel,
                     decode ? " " + settings.variant : "", spec.context, spec.kv_heads, spec.cubes, spec.pes,
                     spec.tile);
}

}  // namespace coprime
