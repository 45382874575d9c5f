// The program: parses, fills the settings, calls one function. The one place where errors become a line and an exit
// code.

#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
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

// What a person can ask for.
struct Command {
  const char *name, *help, *group;
  std::function<void(CLI::App&)> add_flags;
  std::function<int()> run;                    // the exit code
  coprime::RanksSettings* launched = nullptr;  // of a command whose ranks mpirun or srun may start
  CLI::App* app = nullptr;
};

constexpr const char* kModels = "Running models";
constexpr const char* kPlans = "Before that";
constexpr const char* kLinks = "Ranks and links";
constexpr const char* kSim = "Attention on a simulated chip";

void add_commands(CLI::App& parent, std::vector<Command>& commands) {
  for (Command& command : commands) {
    command.app = parent.add_subcommand(command.name, command.help)->group(command.group);
    command.add_flags(*command.app);
    command.app->fallthrough();  // --settings may stand behind the command, too
    command.app->allow_config_extras(CLI::config_extras_mode::error);
  }
}

const Command* parsed(const std::vector<Command>& commands) {
  const auto found = std::ranges::find_if(commands, [](const Command& each) { return each.app->parsed(); });
  return found == commands.end() ? nullptr : &*found;
}

template <class... Settings>
std::function<int()> done(void (*run)(const Settings&...), const Settings&... settings) {
  return [run, &settings...] {
    run(settings...);
    return 0;
  };
}

int run(int argc, char** argv) {
  using namespace coprime;
  WorldSettings world;
  GenerateSettings generate;
  EvalSettings eval;
  GateSettings gate;
  LogitsSettings logits;
  BenchSettings bench;
  TokenizeSettings tokenize;
  PlanSettings plan;
  ProbeSettings probe;
  CheckSettings check;
  SynthSettings synth;
  QuantizeSettings quantize;
  LinkSettings link;
  RankSettings rank;
  KeySettings key;
  SimRunSettings sim_run;
  SimSweepSettings sim_sweep;
  SimSettings sim_knockout;
  SimMilestoneSettings sim_milestone;
  SimExportSettings sim_export;
  std::string sim_chip;
  // Flags of its own, then those of the world that it starts.
  const auto flags = [&](auto add, auto& settings) { return [add, &settings](CLI::App& app) { add(app, settings); }; };
  const auto in_world = [&](auto add, auto& settings) {
    return [add, &settings, &world](CLI::App& app) {
      add(app, settings);
      add_world_flags(app, world);
    };
  };
  std::vector<Command> commands = {
      {"generate", "continue a text, or answer, streaming", kModels, in_world(add_generate_flags, generate),
       done(run_generate, world, generate), &world.ranks},
      {"eval", "accuracy on questions with known answers", kModels, in_world(add_eval_flags, eval),
       done(run_eval_command, world, eval), &world.ranks},
      {"bench", "speed of prefill and decode beside the memory's", kModels, in_world(add_bench_flags, bench),
       done(run_bench, world, bench), &world.ranks},
      {"logits", "teacher-forced logits of given ids", kModels, in_world(add_logits_flags, logits),
       done(run_logits, world, logits), &world.ranks},
      {"tokenize", "ids out of a text or a conversation, and back", kModels, flags(add_tokenize_flags, tokenize),
       done(run_tokenize, tokenize)},
      {"plan", "what a split holds, moves and costs, before the hardware is there", kPlans, flags(add_plan_flags, plan),
       done(run_plan, plan)},
      {"probe", "measure this host for plan --machine", kPlans, flags(add_probe_flags, probe), done(run_probe, probe)},
      {"check", "which tensors a rank count pads, and whether the files fit", kPlans, flags(add_check_flags, check),
       done(run_check, check)},
      {"gate", "acceptance of a padded geometry beside the stock one (an exchange between ranks: coprime link)", kPlans,
       in_world(add_gate_flags, gate), [&] { return run_gate_command(world, gate); }, &world.ranks},
      {"synth", "make a checkpoint with random weights, of any shape", kPlans, flags(add_synth_flags, synth),
       done(run_synth, synth)},
      {"quantize", "write a model's weights in MXFP4 or FP8", kPlans, flags(add_quantize_flags, quantize),
       done(run_quantize, quantize)},
      {"link", "measure what joins the ranks of this host and others, and what follows", kLinks,
       flags(add_link_flags, link), done(run_link, link), &link.ranks},
      {"rank", "serve one rank of a world on another host", kLinks, flags(add_rank_flags, rank),
       [&] { return run_rank_command(rank); }},
      {"key", "make a key file for the hosts of a world", kLinks, flags(add_key_flags, key), done(run_key, key)},
  };
  std::vector<Command> sim_commands = {
      {"run", "one kernel: how long, what bounds it, and why", kSim, flags(add_sim_run_flags, sim_run),
       done(run_sim_run, sim_run)},
      {"sweep", "one run after another: where a choice overtakes another", kSim, flags(add_sim_sweep_flags, sim_sweep),
       done(run_sim_sweep, sim_sweep)},
      {"knockout", "the same run with one resource made ideal at a time", kSim,
       flags(add_sim_knockout_flags, sim_knockout), done(run_sim_knockout, sim_knockout)},
      {"milestone", "ADR-0060's evaluation: four panels, and its gates that compare", kSim,
       flags(add_sim_milestone_flags, sim_milestone), done(run_sim_milestone, sim_milestone)},
      {"export", "an op_log as a database", kSim, flags(add_sim_export_flags, sim_export),
       done(run_sim_export, sim_export)},
      {"chip", "a chip's values and where they come from", kSim,
       [&](CLI::App& app) { app.add_option("FILE", sim_chip, "a chip as YAML [the 4 SIPs of ADR-0060]"); },
       done(run_sim_chip, sim_chip)},
  };

  CLI::App app{"coprime runs an open LLM tensor-parallel on any number of ranks."};
  app.set_version_flag("--version", std::string("coprime ") + COPRIME_VERSION);
  app.set_config("--settings", "", "a file of settings: generate.ranks = 3, or ranks = 3 below a line [generate]");
  const auto settings_file = std::make_shared<SettingsFile>();
  app.config_formatter(settings_file);
  app.footer(
      "A flag --x-y can also come from the variable COPRIME_X_Y, for every command that has it, or from the file of "
      "settings. What stands on the command line counts before the file, and the file before the variable.");
  app.require_subcommand(1);
  app.allow_config_extras(CLI::config_extras_mode::error);
  add_commands(app, commands);
  CLI::App* sim = app.add_subcommand("sim", "attention kernels on a simulated chip")->group(kPlans);
  sim->require_subcommand(1);
  sim->fallthrough();
  sim->allow_config_extras(CLI::config_extras_mode::error);
  add_commands(*sim, sim_commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "coprime: %s\n", usage_error(app, error, {argv + 1, argv + argc}, *settings_file).c_str());
    return exit_code(ErrorKind::kUsage);
  }
  const Command& command = sim->parsed() ? *parsed(sim_commands) : *parsed(commands);
  if (command.launched != nullptr) {
    const auto process = command.launched->launched();
    if (process) command.launched->meet_by_pmix();
    if (process && process->rank > 0) return run_launched_rank(*command.launched, *process);
  }
  return command.run();
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
    std::fputs(
        "coprime: not enough memory: a shorter context needs less, and a model's ranks may lie on other machines\n",
        stderr);
    return 1;
  } catch (const std::exception& error) {
    return report(error, coprime::ErrorKind::kInternal);
  }
}
