// The program: parses, fills the settings, calls one function. The one place where errors become a line and an exit
// code.

#include <fcntl.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/usage_errors.h"
#include "engine/launcher.h"
#include "tools/link_member.h"

namespace {

int report(const std::exception& error, coprime::ErrorKind kind) {
  std::fprintf(stderr, "coprime: %s\n", error.what());
  return coprime::exit_code(kind);
}

int run(int argc, char** argv) {
  CLI::App app{"coprime runs an open LLM tensor-parallel on any number of ranks."};
  app.set_version_flag("--version", std::string("coprime ") + COPRIME_VERSION);
  app.set_config("--config", "", "a file of settings, name = value, by command");
  app.require_subcommand(1);

  coprime::WorldSettings world;
  coprime::GenerateSettings generate;
  coprime::LogitsSettings logits;
  coprime::BenchSettings bench;
  coprime::LinkSettings link;
  CLI::App* generate_command = app.add_subcommand("generate", "continue a text, streaming");
  coprime::add_world_flags(*generate_command, world);
  coprime::add_generate_flags(*generate_command, generate);
  coprime::EvalSettings eval;
  coprime::GateSettings gate;
  CLI::App* eval_command = app.add_subcommand("eval", "accuracy on questions with known answers");
  coprime::add_world_flags(*eval_command, world);
  coprime::add_eval_flags(*eval_command, eval);
  CLI::App* gate_command = app.add_subcommand("gate", "what a padded geometry does to accuracy, kernels and speed");
  coprime::add_world_flags(*gate_command, world);
  coprime::add_gate_flags(*gate_command, gate);
  coprime::TokenizeSettings tokenize;
  CLI::App* tokenize_command = app.add_subcommand("tokenize", "ids out of text, and back");
  coprime::add_tokenize_flags(*tokenize_command, tokenize);
  CLI::App* logits_command = app.add_subcommand("logits", "teacher-forced logits of given ids");
  coprime::add_world_flags(*logits_command, world);
  coprime::add_logits_flags(*logits_command, logits);
  CLI::App* bench_command = app.add_subcommand("bench", "speed of prefill and decode beside the memory's");
  coprime::add_world_flags(*bench_command, world);
  coprime::add_bench_flags(*bench_command, bench);
  CLI::App* link_command =
      app.add_subcommand("link", "measure what joins the ranks of this host and others, and what follows");
  coprime::add_link_flags(*link_command, link);

  coprime::PlanSettings plan;
  coprime::ProbeSettings probe;
  CLI::App* plan_command =
      app.add_subcommand("plan", "what a split holds, moves and costs, before the hardware is there");
  coprime::add_plan_flags(*plan_command, plan);
  CLI::App* probe_command = app.add_subcommand("probe", "measure this host for plan --machine");
  coprime::add_probe_flags(*probe_command, probe);
  CLI::App* sim_command = app.add_subcommand("sim", "attention kernels on a simulated chip");
  sim_command->require_subcommand(1);
  coprime::SimRunSettings sim_run;
  CLI::App* sim_run_command = sim_command->add_subcommand("run", "one kernel: how long, what bounds it, and why");
  coprime::add_sim_run_flags(*sim_run_command, sim_run);
  coprime::SimSweepSettings sim_sweep;
  CLI::App* sim_sweep_command =
      sim_command->add_subcommand("sweep", "one run after another: where a choice overtakes another");
  coprime::add_sim_sweep_flags(*sim_sweep_command, sim_sweep);
  coprime::SimSettings sim_knockout;
  CLI::App* sim_knockout_command =
      sim_command->add_subcommand("knockout", "the same run with one resource made ideal at a time");
  coprime::add_sim_knockout_flags(*sim_knockout_command, sim_knockout);
  coprime::SimMilestoneSettings sim_milestone;
  CLI::App* sim_milestone_command =
      sim_command->add_subcommand("milestone", "ADR-0060's evaluation: four panels, and its gates that compare");
  coprime::add_sim_milestone_flags(*sim_milestone_command, sim_milestone);
  coprime::SimExportSettings sim_export;
  CLI::App* sim_export_command = sim_command->add_subcommand("export", "an op_log as a database");
  coprime::add_sim_export_flags(*sim_export_command, sim_export);
  std::string sim_chip;
  CLI::App* sim_chip_command = sim_command->add_subcommand("chip", "a chip's values and where they come from");
  sim_chip_command->add_option("FILE", sim_chip, "a chip as YAML [the 4 SIPs of ADR-0060]");
  coprime::SynthSettings synth;
  CLI::App* synth_command = app.add_subcommand("synth", "make a checkpoint with random weights, of any shape");
  coprime::add_synth_flags(*synth_command, synth);
  coprime::CheckSettings check;
  CLI::App* check_command = app.add_subcommand("check", "which tensors a rank count pads, and whether the files fit");
  coprime::add_check_flags(*check_command, check);

  coprime::QuantizeSettings quantize;
  CLI::App* quantize_command = app.add_subcommand("quantize", "write a model's weights in MXFP4 or FP8");
  coprime::add_quantize_flags(*quantize_command, quantize);

  coprime::RankSettings rank;
  coprime::KeySettings key;
  CLI::App* rank_command = app.add_subcommand("rank", "serve one rank of a world on another host");
  coprime::add_rank_flags(*rank_command, rank);
  CLI::App* key_command = app.add_subcommand("key", "make a key file for the hosts of a world");
  coprime::add_key_flags(*key_command, key);

  for (CLI::App* command : app.get_subcommands({})) {
    command->fallthrough();  // --config may stand behind the command, too
    command->allow_config_extras(CLI::config_extras_mode::error);
  }
  app.allow_config_extras(CLI::config_extras_mode::error);

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "coprime: %s\n", coprime::usage_error(app, error).c_str());
    return coprime::exit_code(coprime::ErrorKind::kUsage);
  }
  if (key_command->parsed()) coprime::run_key(key);
  if (synth_command->parsed()) coprime::run_synth(synth);
  if (rank_command->parsed()) return coprime::run_rank_command(rank);
  if (check_command->parsed()) coprime::run_check(check);
  if (quantize_command->parsed()) coprime::run_quantize(quantize);
  if (tokenize_command->parsed()) coprime::run_tokenize(tokenize);
  if (plan_command->parsed()) coprime::run_plan(plan);
  if (sim_run_command->parsed()) coprime::run_sim_run(sim_run);
  if (sim_sweep_command->parsed()) coprime::run_sim_sweep(sim_sweep);
  if (sim_knockout_command->parsed()) coprime::run_sim_knockout(sim_knockout);
  if (sim_milestone_command->parsed()) coprime::run_sim_milestone(sim_milestone);
  if (sim_export_command->parsed()) coprime::run_sim_export(sim_export);
  if (sim_chip_command->parsed()) coprime::run_sim_chip(sim_chip);
  if (probe_command->parsed()) coprime::run_probe(probe);
  if (generate_command->parsed() || eval_command->parsed() || gate_command->parsed() || logits_command->parsed() ||
      bench_command->parsed() || link_command->parsed()) {
    coprime::RanksSettings& ranks = link_command->parsed() ? link.ranks : world.ranks;
    const auto process = ranks.launched();
    if (process) ranks.meet_by_pmix();
    if (process && process->rank > 0) return coprime::run_launched_rank(ranks, *process);
  }
  if (eval_command->parsed()) coprime::run_eval_command(world, eval);
  if (gate_command->parsed()) return coprime::run_gate_command(world, gate);
  if (generate_command->parsed()) coprime::run_generate(world, generate);
  if (logits_command->parsed()) coprime::run_logits(world, logits);
  if (bench_command->parsed()) coprime::run_bench(world, bench);
  if (link_command->parsed()) coprime::run_link(link);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of write()
  // A closed standard stream's number must not become a socket that text is then written to. Read-only: writing still
  // fails.
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDONLY) != fd)
      return coprime::exit_code(coprime::ErrorKind::kInternal);
  }
  if (argc >= 2 && argv[1] == coprime::kLocalRank) return coprime::rank_process_main(coprime::serve_link_trials);
  try {
    return run(argc, argv);
  } catch (const coprime::Error& error) {
    return report(error, error.kind());
  } catch (const std::bad_alloc&) {
    std::fputs("coprime: not enough memory: use a shorter context or more ranks on other machines\n", stderr);
    return 1;
  } catch (const std::exception& error) {
    return report(error, coprime::ErrorKind::kInternal);
  }
}
