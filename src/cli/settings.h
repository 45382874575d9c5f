// Everything that a person can set, with its default: filled from flags, a file (--settings) and COPRIME_* variables by
// one table (settings.cpp). Nothing below cli/ reads the environment.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/launched.h"
#include "cli/pmix/pmix_job.h"
#include "engine/front.h"

namespace coprime {

// Of every command that starts ranks: how many there are, where they run, what joins them.
struct RanksSettings {
  std::optional<int> ranks;  // unset: as many as come from elsewhere, or the command's least
  std::string link = "auto";
  VerbsChoice verbs;
  int gate_timeout_ms = 750, port = 0;
  bool wire_auth = false;
  std::string listen, key_file, hosts, ssh = "ssh", launcher = "auto";
  int remote = 0, join_timeout = 300;

  std::shared_ptr<PmixJob> pmix;  // set by meet_by_pmix(); no flag

  std::optional<LaunchedProcess> launched() const;                  // by mpirun or srun; never with --launcher none
  void meet_by_pmix();                                              // if it can, and nothing else is set
  MeetingPoint launched_meeting(const LaunchedProcess& job) const;  // where its ranks join without it
  std::optional<SecretKey> key() const;                             // of --key-file
  RemoteOptions remote_options() const;
  int count(const RemoteOptions& remote, int least) const;  // of all ranks
  Link wish() const;
};

// Of the commands that run a model.
struct WorldSettings {
  RanksSettings ranks;
  std::string model;
  int threads = 0, pad_for = 0, prefill_chunk = 256;
  int64_t mlp_width = 0;
  std::string math = "split", kv = "f32", isa = "best";
  bool exact = false, hash_gates = false, gate_profile = false, gate_trace = false;

  WorldOptions options() const;  // but for context and sequences, which depend on the request
};

// Of `coprime rank`.
struct RankSettings {
  std::string join, key_file, model;
  int rank = -1, threads = 0;
  VerbsChoice verbs;
  bool once = false;

  std::optional<SecretKey> key() const;  // of --key-file, or of standard input
};

struct KeySettings {
  std::string file;
};

// A conversation: of --chat or of the file of --messages.
struct ChatSettings {
  std::optional<std::string> message, file;
  std::string options;  // JSON

  bool given() const { return message || file; }
};

struct GenerateSettings {
  std::optional<std::string> prompt, prompt_file;
  ChatSettings chat;
  std::optional<double> temperature, top_p, min_p;  // unset: generation_config.json
  std::optional<int> top_k;
  std::optional<uint64_t> seed;  // unset: random
  int64_t max_tokens = 0;        // 0: to the context's end
  std::vector<std::string> stops;
  std::string trace;  // file; empty: none
  bool stats = false, json = false;
};

struct TokenizeSettings {
  std::string model;
  std::optional<std::string> text, jsonl;
  ChatSettings chat;
  bool decode = false;
};

struct EvalSettings {
  std::string data, out, against, chat_options;
  size_t limit = 0;  // 0: all
  int concurrency = 8;
  int64_t max_tokens = 256;
};

// Of `coprime gate`; `eval.out` is the report's.
struct GateSettings {
  std::string gate;
  int pad_for = 3;
  EvalSettings eval;
  bool json = false;
};

struct LogitsSettings {
  std::string ids, out;
};

struct LinkSettings {
  RanksSettings ranks;
  std::string model;
  int repeat = 500;
  std::vector<std::string> sizes;  // "16K", "1M", or bytes
  bool exact = false, json = false, gpu = false;
};

struct BenchSettings {
  int prompt_tokens = 512, decode_tokens = 128, batch = 1, repeat = 3;
  bool json = false;
};

struct PlanSettings {
  std::string model, format, drafter, memory, svg, kv = "f32", math = "split", isa = "best";
  std::vector<std::string> machine;  // names or files
  int ranks = 1, pad_for = 0;
  int64_t context = 4096, batch = 1;
  bool exact = false, kernels = false, json = false;
};

// What the commands of `coprime sim` simulate.
struct SimSettings {
  std::string kernel = "decode", variant = "opt3", context = "1M", max_context, chip, within = "tree", across = "mesh";
  int cubes = 8, pes = 8, kv_heads = 8, kv_per_cube = 1, users = 1;
  int64_t tile = 64, rows = 8, d = 128, query_rows = 256;
  std::string query_begin = "0", query_end;  // empty: the context's
  std::set<std::string> given;               // names of those of these flags that a person set
};

struct SimRunSettings : SimSettings {
  std::string trace, oplog, threshold = "256K";
  int layers = 1;
  bool automatic = false, data = false, json = false, events = false;
};

struct SimSweepSettings : SimSettings {
  std::string over, svg;  // over: quantities, some with values
};

struct SimMilestoneSettings {
  std::string name, chip, context = "1M", prompt = "2K";
  int device = 0, users = 8, layers = 80;  // device: SIPs; 0: the chip's
};

struct SimExportSettings {
  std::string oplog, sqlite;
};

struct ProbeSettings {
  std::string out;
};

struct SynthSettings {
  std::string config, format = "bf16", out;
  int layers = 0;  // 0: all
  uint64_t seed = 0;
  bool headers_only = false, bf16_mtp = false;
};

struct CheckSettings {
  std::string model, drafter;
  int ranks = 1, pad_for = 0;
  int64_t mlp_width = 0;
  bool tensors = false, json = false;
};

struct QuantizeSettings {
  std::string model, out, to;
};

// Of the values of --math, --kv and --isa.
MathMode math_of(std::string_view name);
DType kv_type_of(std::string_view name);
Isa isa_of(std::string_view name);

// A line on standard error. A rank may be another host's: what it says is shown as plain text.
void print_report(const std::string& line);

void add_world_flags(CLI::App& app, WorldSettings& settings);
void add_generate_flags(CLI::App& app, GenerateSettings& settings);
void add_tokenize_flags(CLI::App& app, TokenizeSettings& settings);
void add_eval_flags(CLI::App& app, EvalSettings& settings);
void add_gate_flags(CLI::App& app, GateSettings& settings);
void add_logits_flags(CLI::App& app, LogitsSettings& settings);
void add_bench_flags(CLI::App& app, BenchSettings& settings);
void add_link_flags(CLI::App& app, LinkSettings& settings);
void add_sim_knockout_flags(CLI::App& app, SimSettings& settings);
void add_sim_run_flags(CLI::App& app, SimRunSettings& settings);
void add_sim_sweep_flags(CLI::App& app, SimSweepSettings& settings);
void add_sim_milestone_flags(CLI::App& app, SimMilestoneSettings& settings);
void add_sim_export_flags(CLI::App& app, SimExportSettings& settings);
void add_plan_flags(CLI::App& app, PlanSettings& settings);
void add_probe_flags(CLI::App& app, ProbeSettings& settings);

void add_synth_flags(CLI::App& app, SynthSettings& settings);
void add_rank_flags(CLI::App& app, RankSettings& settings);
void add_check_flags(CLI::App& app, CheckSettings& settings);
void add_quantize_flags(CLI::App& app, QuantizeSettings& settings);
void add_key_flags(CLI::App& app, KeySettings& settings);

}  // namespace coprime
