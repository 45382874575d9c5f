#include "cli/sim_spec.h"

#include "attention/cube_groups.h"
#include "base/error.h"
#include "sim/chip_file.h"
#include "tools/sim_knobs.h"
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
  spec.users = settings.users;
  sim::Chip none;
  set_swept("kernel", settings.kernel, none, spec);
  set_swept("query-begin", settings.query_begin, none, spec);
  if (!settings.query_end.empty()) set_swept("query-end", settings.query_end, none, spec);
  set_swept("variant", settings.variant, none, spec);
  set_swept("context", settings.context, none, spec);
  if (!settings.max_context.empty()) set_swept("max-context", settings.max_context, none, spec);
  if (spec.largest_context > 0 && spec.largest_context < spec.context) {
    fail(ErrorKind::kUsage, "--max-context {} is less than --context {}: leave it out, or raise it",
         settings.max_context, settings.context);
  }
  set_swept("within", settings.within, none, spec);
  set_swept("across", settings.across, none, spec);
  return spec;
}

void check_given(const SimSettings& settings, const std::vector<tl::Kernel>& kernels,
                 const std::set<std::string>& others) {
  for (const std::string& name : settings.given)
    if (!others.contains(name)) check_knob(kernels, name, "--");
}

std::string sim_title(const SimSettings& settings, const sim::RunSpec& spec) {
  std::string title(name_of(spec.kernel));
  if (takes(spec.kernel, "variant")) title += " " + settings.variant;
  if (spec.kernel == tl::Kernel::kAllReduce)
    return title + fmt::format(": rows of {} x {} on C = {}, P = {}", spec.rows, spec.d, spec.cubes, spec.pes);
  return title + fmt::format(": {}{} tokens, {} KV heads, {}, P = {}, tiles of {}",
                             spec.users > 1 ? fmt::format("{} users of ", spec.users) : "", spec.context, spec.kv_heads,
                             takes(spec.kernel, "cubes") ? fmt::format("C = {}", spec.cubes)
                                                         : fmt::format("{} on a CUBE", spec.kv_per_cube),
                             spec.pes, spec.tile);
}

void warn_of_shape(const sim::RunSpec& spec) {
  if (attention::is_whole_pe_mesh(spec.pes)) return;
  const attention::Mesh mesh = attention::pe_mesh(spec.pes);
  print_report(fmt::format("warning: {} PEs stand {}: a tree over them may take more rounds than over 1, 2, 4 or 8",
                           spec.pes,
                           mesh.rows == 1 ? "in a line" : fmt::format("as {} x {}", mesh.rows, mesh.columns)));
}

void explain_head_packing(const sim::RunSpec& spec, const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    if (spec.kernel != tl::Kernel::kHeadPacking || spec.rows == 1) throw;
    fail(error.kind(),
         "{}. That is what this baseline shows: with the heads of a group packed into one product bytes are conserved "
         "for one query head alone. It runs with coprime sim run head-packing --group 1",
         error.what());
  }
}

}  // namespace coprime
