// coprime sim sweep, knockout, milestone, export and chip: what is made of several runs, of a run's op_log, of a chip's
// file.
#include "base/clock.h"
#include "base/interruption.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/sim_progress.h"
#include "cli/sim_spec.h"
#include "sim/chip_file.h"
#include "sim/op_log_file.h"
#include "tools/line_chart.h"
#include "tools/op_log_sqlite.h"
#include "tools/sim_knockout.h"
#include "tools/sim_milestone.h"
#include "tools/sim_sweep.h"

namespace coprime {

void run_sim_sweep(const SimSweepSettings& settings) {
  std::vector<std::filesystem::path> inputs;
  if (!settings.chip.empty()) inputs.push_back(settings.chip);
  if (!settings.svg.empty()) {
    check_output_flag("--svg", settings.svg, inputs);
    check_replaces("--svg", settings.svg, "chart of coprime sim sweep", is_chart_svg);
  }
  const sim::Chip chip = sim_chip(settings);
  const sim::RunSpec spec = sim_spec(settings);
  const std::vector<SweepAxis> axes = parse_sweep_axes(settings.over);
  check_given(settings, kernels_of(axes, spec.kernel));
  warn_of_shape(spec);
  SimProgress progress(terminal_write(), now_us());
  const Sweep sweep =
      run_sweep(chip, spec, axes, [&](size_t run, size_t runs) { progress.within_runs(run, runs, now_us()); });
  progress.clear();
  check_any_ran(sweep);
  const std::string chip_line = fmt::format("chip {:016x}", sim::chip_hash(chip));
  if (!settings.svg.empty())
    write_output(settings.svg, sweep_svg(sweep, "simulated, and the formula (dashed); " + chip_line));
  print(chip_line + "\n" + sweep_table(sweep));
}

void run_sim_knockout(const SimSettings& settings) {
  const sim::RunSpec spec = sim_spec(settings);
  check_given(settings, {spec.kernel});
  const sim::Chip chip = sim_chip(settings);
  warn_of_shape(spec);
  SimProgress progress(terminal_write(), now_us());
  std::vector<Knockout> knockouts;
  explain_head_packing(spec, [&] {
    knockouts = run_knockouts(chip, spec, [&](size_t run, size_t runs) { progress.within_runs(run, runs, now_us()); });
  });
  progress.clear();
  print(sim_title(settings, spec) + "\n" + knockout_table(knockouts));
}

void run_sim_milestone(const SimMilestoneSettings& settings) {
  sim::Chip chip = settings.chip.empty() ? sim::ahbm_chip() : sim::read_chip(settings.chip).chip;
  if (settings.device > 0) chip.sips = settings.device;
  sim::RunSpec context, prompt;
  set_swept("context", settings.context, chip, context);
  set_swept("context", settings.prompt, chip, prompt);
  const MilestoneOptions options{context.context, prompt.context, settings.users, settings.layers};
  SimProgress progress(terminal_write(), now_us());
  const Milestone milestone = run_milestone(chip, options, [&](sim::Tick now, uint64_t events) {
    progress.within_run(sim::microseconds(now), events, now_us());
  });
  progress.clear();
  print(fmt::format("gqa-llama70b on {} SIPs, chip {:016x}: decode at {} tokens, prefill of {}\n", chip.sips,
                    sim::chip_hash(chip), options.context, options.prompt) +
        milestone_table(milestone));
}

void run_sim_export(const SimExportSettings& settings) {
  check_output_flag("--sqlite", settings.sqlite, {settings.oplog});
  check_replaces("--sqlite", settings.sqlite, "database of coprime sim export", is_op_log_sqlite);
  const sim::OpLogFile file = sim::read_op_log(settings.oplog);
  const Interruption interruption;
  ProgressLine line(terminal_write());
  write_op_log_sqlite(settings.sqlite, file, [&](size_t row, size_t rows) {
    interruption.check();
    show_percent(line, row, rows);
  });
  line.clear();
  print(fmt::format("{} rows, hash {:016x}\n", file.log.size(), sim::op_log_hash(file.log)));
}

void run_sim_chip(const std::string& file) {
  if (!file.empty()) return print(sim::chip_report(sim::read_chip(file)));
  const sim::Chip chip = sim::ahbm_chip();
  print(fmt::format("chip {:016x} (chips/ahbm-4sip.yaml says where its values come from)\n", sim::chip_hash(chip)) +
        sim::chip_text(chip));
}

}  // namespace coprime
