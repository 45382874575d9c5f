// One function a command. Each throws Error, which main() prints as one line.
#pragma once

#include "cli/settings.h"

namespace coprime {

void run_generate(const WorldSettings& world, const GenerateSettings& settings);
void run_tokenize(const TokenizeSettings& settings);
void run_eval_command(const WorldSettings& world, const EvalSettings& settings);
int run_gate_command(const WorldSettings& world, const GateSettings& settings);  // the exit code: 1 if it failed
void run_logits(const WorldSettings& world, const LogitsSettings& settings);
void run_bench(const WorldSettings& world, const BenchSettings& settings);
void run_link(const LinkSettings& settings);
void run_plan(const PlanSettings& settings);
void run_sim_run(const SimRunSettings& settings);
void run_sim_sweep(const SimSweepSettings& settings);
void run_sim_knockout(const SimSettings& settings);
void run_sim_milestone(const SimMilestoneSettings& settings);
void run_sim_export(const SimExportSettings& settings);
void run_sim_chip(const std::string& file);
void run_probe(const ProbeSettings& settings);
void run_synth(const SynthSettings& settings);
void run_check(const CheckSettings& settings);
void run_quantize(const QuantizeSettings& settings);
void run_key(const KeySettings& settings);
int run_rank_command(const RankSettings& settings);  // the exit code

// Serves a rank in a process that mpirun or srun started beside rank 0's, which runs the command. The exit code.
int run_launched_rank(const RanksSettings& settings, const LaunchedProcess& process);

}  // namespace coprime
