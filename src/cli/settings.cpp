#include "cli/settings.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/count_text.h"
#include "base/limits.h"
#include "cli/invitation.h"
#include "engine/core_plan.h"
#include "gate/constants.h"

namespace coprime {
namespace {

// --max-tokens is also COPRIME_MAX_TOKENS.
template <class T>
CLI::Option* add(CLI::App& app, const std::string& name, T& value, const std::string& help) {
  std::string variable = "COPRIME_" + name.substr(2);
  std::ranges::transform(variable, variable.begin(), [](unsigned char c) { return c == '-' ? '_' : std::toupper(c); });
  CLI::Option* option;
  if constexpr (std::is_same_v<T, bool>) {
    option = app.add_flag(name, value, help);
  } else {
    option = app.add_option(name, value, help);
  }
  return option->envname(variable);
}

// What is added to `app` from here on stands under this title in --help.
void begin_group(CLI::App& app, const std::string& title) { app.option_defaults()->group(title); }

// The whole text a finite number from least to most.
template <class T>
CLI::Validator in_range(T least, T most) {
  const auto check = [=](std::string& text) -> std::string {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc() && end == text.data() + text.size() && value >= least && value <= most) return {};
    return fmt::format("expected a number from {} to {}, found \"{}\"", least, most, text);
  };
  return CLI::Validator(check, fmt::format("{} to {}", least, most));
}

// A number from 1 to most; 2K becomes 2048.
CLI::Validator with_units(int64_t most) {
  const auto replace = [=](std::string& text) -> std::string {
    const auto count = parse_count(text, most);
    if (!count) return fmt::format("expected a number from 1 to {}, such as 64, 256K or 1M, found \"{}\"", most, text);
    text = std::to_string(*count);
    return {};
  };
  return CLI::Validator(replace, fmt::format("1 to {}", most));
}

// What math_of(), kv_type_of() and isa_of() know.
CLI::IsMember is_math() { return CLI::IsMember({"f32", "split", "fast"}); }
CLI::IsMember is_kv_type() { return CLI::IsMember({"f32", "f16", "bf16", "fp8"}); }
CLI::IsMember is_isa() { return CLI::IsMember({"best", "avx512", "avx2", "reference"}); }

constexpr int64_t kMaxCount = int64_t{1} << 40;
constexpr uint64_t kMaxSeed = UINT64_MAX;

void add_verbs_flags(CLI::App& app, VerbsChoice& choice, const std::string& otherwise) {
  add(app, "--verbs-device", choice.device, "RDMA device, as ibv_devices names it" + otherwise);
  add(app, "--verbs-gid", choice.gid_index, "index in its GID table; -1: that of the address by which the ranks meet")
      ->check(in_range(-1, 255))
      ->capture_default_str();
}

// `count`: what --ranks says of their number.
void add_ranks_flags(CLI::App& app, RanksSettings& s, int least, const std::string& count) {
  begin_group(app, "Ranks and what joins them");
  add(app, "--ranks", s.ranks, count)->check(in_range(least, kMaxRanks));
  add(app, "--link", s.link, "what joins the ranks; auto: the best that each two have")
      ->check(CLI::IsMember({"auto", "shm", "tcp", "verbs", "ucx"}))
      ->capture_default_str();
  add_verbs_flags(app, s.verbs, " [the first whose port is active]");
  add(app, "--gate-timeout-ms", s.gate_timeout_ms, "how long a peer may stand still before it is given up")
      ->check(in_range(1, DS4_TP_MAX_GATE_TIMEOUT_MS))
      ->capture_default_str();
  add(app, "--port", s.port, "rank r listens for the others on this port plus r; 0: any")
      ->check(in_range(0, 65519))
      ->capture_default_str();
  add(app, "--wire-auth", s.wire_auth, "a keyed hash with every message between hosts; costs time a gate");
  begin_group(app, "Ranks of other hosts");
  add(app, "--listen", s.listen, "HOST:PORT where ranks of other hosts join; beyond the loopback with --key-file");
  add(app, "--key-file", s.key_file, "key of the world, made by coprime key, the same on all hosts");
  add(app, "--remote", s.remote, "how many of the ranks join from elsewhere (coprime rank --join)")
      ->check(in_range(0, kMaxRanks))
      ->capture_default_str();
  add(app, "--hosts", s.hosts,
      "file of hosts where ranks are started by ssh: host [ranks=K] [model=DIR] [program=PATH]");
  add(app, "--ssh", s.ssh, "the program that reaches them")->capture_default_str();
  add(app, "--join-timeout", s.join_timeout, "seconds that all ranks have to join")
      ->check(in_range(1, 86400))
      ->capture_default_str();
  add(app, "--launcher", s.launcher, "auto: ranks and world from mpirun or srun, if they started this process")
      ->check(CLI::IsMember({"auto", "none"}))
      ->capture_default_str();
}

// `input`: of whose flags one is to be given.
void add_chat_flags(CLI::Option_group& input, CLI::App& app, ChatSettings& s) {
  add(input, "--chat", s.message, "a user's message, put in the form of the model's chat template");
  add(input, "--messages", s.file,
      "JSON file of a conversation: a list of messages, or an object with messages, tools and more for the template");
  add(app, "--chat-options", s.options, "a JSON object for the chat template: {\"enable_thinking\": false}");
}

void add_question_flags(CLI::App& app, EvalSettings& s) {
  add(app, "--data", s.data, "file of questions, a line {\"question\", \"answer\"} each, whose answers end in #### n")
      ->required();
  add(app, "--limit", s.limit, "the first so many questions; 0: all")
      ->check(in_range(size_t{0}, size_t{1} << 30))
      ->capture_default_str();
  add(app, "--concurrency", s.concurrency, "questions side by side")->check(in_range(1, 4096))->capture_default_str();
  add(app, "--max-tokens", s.max_tokens, "of an answer")->check(in_range(int64_t{1}, kMaxCount))->capture_default_str();
  add(app, "--chat-options", s.chat_options, "a JSON object for the chat template: {\"enable_thinking\": false}");
}

}  // namespace

void print_report(const std::string& line) {
  std::string text = line;
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  fmt::print(stderr, "coprime: {}\n", text);
}

void add_world_flags(CLI::App& app, WorldSettings& s) {
  begin_group(app, "Options");
  add(app, "--model", s.model, "the model: a folder with config.json, safetensors and tokenizer.json, or a GGUF file")
      ->required();
  add_ranks_flags(
      app, s.ranks, 1,
      "number of ranks, 1 to 16, any of them [as many as come from elsewhere, or one a NUMA node of this host]");
  begin_group(app, "Arithmetic and geometry");
  add(app, "--threads", s.threads, "threads a rank; 0 shares the cores out")
      ->check(in_range(0, 1024))
      ->capture_default_str();
  add(app, "--math", s.math,
      "arithmetic of products with weights of 16 bits or fewer: activations as they are (f32), in two parts (split: 15 "
      "bits or more), in one (fast: 8 bits)")
      ->check(is_math())
      ->capture_default_str();
  add(app, "--kv", s.kv, "type of cached keys and values; fp8: e4m3 with a scale for each token and head")
      ->check(is_kv_type())
      ->capture_default_str();
  add(app, "--exact", s.exact, "the same bits at every rank count, batch and chunking; a second exchange a gate");
  add(app, "--pad-for", s.pad_for, "widen the geometry for this many ranks; 0: as many as run")
      ->check(in_range(0, 16))
      ->capture_default_str();
  add(app, "--mlp-width", s.mlp_width, "padded width of the MLP; 0: by rule")
      ->check(in_range(int64_t{0}, kMaxCount))
      ->capture_default_str();
  add(app, "--prefill-chunk", s.prefill_chunk, "rows of one step at most")
      ->check(in_range(1, 65536))
      ->capture_default_str();
  add(app, "--isa", s.isa, "limit of the instruction set")->check(is_isa())->capture_default_str();
  begin_group(app, "Looking into a run");
  add(app, "--hash-gates", s.hash_gates, "debugging: compare every gate's result between the ranks");
  add(app, "--gate-profile", s.gate_profile,
      fmt::format("each rank's mean times to post and to wait, by kind of gate, every {} gates, on standard error",
                  kProfileSamples));
  add(app, "--gate-trace", s.gate_trace,
      "debugging: layer, gate, slot and sequence of every gate of every rank, on standard error; slow");
}

void add_generate_flags(CLI::App& app, GenerateSettings& s) {
  CLI::Option_group* prompt = app.add_option_group("prompt");
  add(*prompt, "--prompt", s.prompt, "text to continue");
  add_chat_flags(*prompt, app, s.chat);
  add(*prompt, "--prompt-file", s.prompt_file, "file with the text to continue; - is standard input");
  prompt->require_option(1);
  begin_group(app, "Sampling");
  add(app, "--max-tokens", s.max_tokens, "0: to the end of the context")
      ->check(in_range(int64_t{0}, kMaxCount))
      ->capture_default_str();
  const std::string from_model = " [generation_config.json]";
  add(app, "--temperature", s.temperature, "0 is greedy" + from_model)->check(in_range(0.0, 100.0));
  add(app, "--top-k", s.top_k, "only the k most probable; 0: all" + from_model)->check(in_range(0, 1 << 24));
  add(app, "--top-p", s.top_p, "only the most probable with this mass" + from_model)->check(in_range(0.0, 1.0));
  add(app, "--min-p", s.min_p, "only what has this share of the most probable" + from_model)->check(in_range(0.0, 1.0));
  add(app, "--seed", s.seed, "of the draws [random]")->check(in_range(uint64_t{0}, kMaxSeed));
  add(app, "--stop", s.stops, "end before this text; may be given again")
      ->take_all()
      ->check(CLI::Validator(
          [](const std::string& text) { return text.empty() ? "a stop text has a character at least" : ""; }, ""));
  begin_group(app, "Looking into a run");
  add(app, "--stats", s.stats, "a table of geometry, memory, speed and gates, on standard error");
  add(app, "--trace", s.trace,
      "file to write: what all ranks did in the first step and in a step of decode, for ui.perfetto.dev");
  begin_group(app, "Options");
  add(app, "--json", s.json, "one JSON object instead of the streaming text");
}

void add_tokenize_flags(CLI::App& app, TokenizeSettings& s) {
  add(app, "--model", s.model, "a folder with tokenizer.json, or a GGUF file")->required();
  CLI::Option_group* input = app.add_option_group("input");
  add(*input, "--text", s.text, "the text, or with --decode its ids: \"1 2 3\"");
  add(*input, "--jsonl", s.jsonl, "file with a line {\"text\"} each, or with --decode {\"ids\"}; - is standard input");
  add_chat_flags(*input, app, s.chat);
  input->require_option(1);
  add(app, "--decode", s.decode, "from ids to text");
}

void add_eval_flags(CLI::App& app, EvalSettings& s) {
  add_question_flags(app, s);
  add(app, "--out", s.out, "file to write: a JSON line a question; a run that was stopped goes on where it was");
  add(app, "--against", s.against, "an earlier run's file: compare the two");
}

void add_gate_flags(CLI::App& app, GateSettings& s) {
  app.add_option("gate", s.gate, "a: the whole geometry padded, on one rank; b: the heads padded, on two ranks")
      ->required()
      ->check(CLI::IsMember({"a", "b"}));
  add(app, "--for", s.pad_for, "the rank count that the geometry is widened for")
      ->check(in_range(2, kMaxRanks))
      ->capture_default_str();
  add_question_flags(app, s.eval);
  add(app, "--out", s.eval.out, "file to write: the report as one JSON object");
  add(app, "--json", s.json, "the same on standard output instead of the table");
}

void add_logits_flags(CLI::App& app, LogitsSettings& s) {
  add(app, "--ids", s.ids, "FILE.safetensors:NAME of an i32 or i64 tensor [batch, T] or [T]")->required();
  add(app, "--out", s.out, "safetensors file to write: `logits`, f32, the ids' shape and the vocabulary")->required();
}

void add_bench_flags(CLI::App& app, BenchSettings& s) {
  add(app, "--prompt-tokens", s.prompt_tokens, "of each sequence")->check(in_range(1, 1 << 20))->capture_default_str();
  add(app, "--decode-tokens", s.decode_tokens, "of each sequence")->check(in_range(1, 1 << 20))->capture_default_str();
  add(app, "--batch", s.batch, "sequences side by side")->check(in_range(1, 4096))->capture_default_str();
  add(app, "--repeat", s.repeat, "measured rounds, after one to warm up")
      ->check(in_range(1, 1000))
      ->capture_default_str();
  add(app, "--json", s.json, "one JSON object instead of the table");
}

void add_link_flags(CLI::App& app, LinkSettings& s) {
  add_ranks_flags(app, s.ranks, 2, "number of ranks [as many as come from elsewhere, two at least]");
  begin_group(app, "Options");
  add(app, "--sizes", s.sizes, "bytes of a vector, with K or M for KiB or MiB [4K,8K,16K,24K,48K,64K,1M,16M]")
      ->delimiter(',');
  add(app, "--repeat", s.repeat, "transfers of each sort up to 64 KiB; fewer of larger ones")
      ->check(in_range(1, 1'000'000))
      ->capture_default_str();
  add(app, "--model", s.model, "also say what a token of this checkpoint costs in gates");
  add(app, "--exact", s.exact, "of --model: in exact mode");
  add(app, "--gpu", s.gpu, "measure what joins this host's GPUs instead; --ranks: one for each GPU if it is not given")
      ->excludes("--sizes", "--model", "--exact", "--repeat", "--link");
  add(app, "--json", s.json, "one JSON object instead of the tables");
}

void add_plan_flags(CLI::App& app, PlanSettings& s) {
  add(app, "--model", s.model, "a folder with config.json (weights need not be there), a GGUF file, or a name")
      ->required();
  add(app, "--ranks", s.ranks, "number of ranks, any from 1 to 16")->required()->check(in_range(1, kMaxRanks));
  add(app, "--format", s.format,
      "of the weights: bf16, mxfp4, fp8-block, fp8-channel, q4_0, q4_k_m, ... [as the model says]");
  add(app, "--drafter", s.drafter, "folder of a drafter that is padded with the model");
  add(app, "--pad-for", s.pad_for, "widen the geometry for this many ranks; 0: as many as run")
      ->check(in_range(0, kMaxRanks))
      ->capture_default_str();
  add(app, "--machine", s.machine,
      "a file of coprime probe or coprime link --json, or a typical machine: desktop, server, raspberry-pi-5, "
      "dgx-spark, "
      "mac-studio, rtx-3090, rtx-4090, r9700, h200; may be given again, files add to each other [desktop]")
      ->take_all();
  add(app, "--context", s.context, "tokens of a sequence at which a step is counted, with K or M for 2^10 or 2^20")
      ->transform(with_units(kMaxCount))
      ->capture_default_str();
  add(app, "--batch", s.batch, "sequences side by side")
      ->check(in_range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  add(app, "--memory", s.memory,
      "bytes that a rank has, with K, M, G or T (or KB, KiB, ...) for KiB to TiB [the machine's]");
  add(app, "--kv", s.kv, "type of cached keys and values")->check(is_kv_type())->capture_default_str();
  add(app, "--exact", s.exact, "the mode with the same bits at every rank count");
  add(app, "--svg", s.svg, "file to write: a picture of who owns what");
  add(app, "--kernels", s.kernels, "also say which kernel this CPU takes for each operation, and why not another");
  add(app, "--math", s.math, "of --kernels: the arithmetic of products")->check(is_math())->capture_default_str();
  add(app, "--isa", s.isa, "of --kernels: limit of the instruction set")->check(is_isa())->capture_default_str();
  add(app, "--json", s.json, "one JSON object instead of the tables");
}

static CLI::Option* add_kernel(CLI::App& app, SimSettings& s) {
  return app
      .add_option(
          "KERNEL", s.kernel,
          "decode, prefill (on a ring of CUBEs), decode-short, prefill-short (whole heads on a CUBE), allreduce; to "
          "compare with: fan-out, kv-fan-out, blocking-dot, head-packing")
      ->check(CLI::IsMember({"decode", "prefill", "decode-short", "prefill-short", "allreduce", "fan-out", "kv-fan-out",
                             "blocking-dot", "head-packing"}));
}

// A flag that some kernels have no use for: who sets it is told (cli/sim_spec.h).
template <class T>
static CLI::Option* add_knob(CLI::App& app, SimSettings& s, const std::string& name, T& value,
                             const std::string& help) {
  return add(app, "--" + name, value, help)->each([&s, name](const std::string&) { s.given.insert(name); });
}

void add_sim_flags(CLI::App& app, SimSettings& s) {
  const auto is_topology = CLI::IsMember({"tree", "mesh", "chain", "ring", "star"});
  const auto knob = [&](const std::string& name, auto& value, const std::string& help) {
    return add_knob(app, s, name, value, help);
  };
  knob("variant", s.variant,
       "of decode: opt1 waits for each tile's scores, opt3 has the next ones under way, opt3v its values, too, opt2 "
       "gives softmax to the scheduler")
      ->check(CLI::IsMember({"opt1", "opt3", "opt3v", "opt2"}))
      ->capture_default_str();
  knob("context", s.context, "tokens, the new one included, with K or M for 2^10 or 2^20")->capture_default_str();
  knob("max-context", s.max_context, "tokens that the cache has room for: ranks own blocks of these [the context]");
  knob("cubes", s.cubes, "CUBEs that share a KV head: a contiguous rectangle of a SIP")
      ->check(in_range(1, 1024))
      ->capture_default_str();
  knob("pes", s.pes, "PEs of a CUBE that take part; 1, 2, 4 and 8 reduce in the fewest rounds")
      ->check(in_range(1, 8))
      ->capture_default_str();
  knob("tile", s.tile, "keys of a tile")->check(in_range(int64_t{1}, int64_t{1} << 20))->capture_default_str();
  knob("kv-heads", s.kv_heads, "KV heads of the model")->check(in_range(1, 1024))->capture_default_str();
  knob("group", s.rows, "query heads of a KV head")->check(in_range(int64_t{1}, int64_t{1024}))->capture_default_str();
  knob("head-dim", s.d, "width of a head")->check(in_range(int64_t{1}, int64_t{4096}))->capture_default_str();
  knob("kv-per-cube", s.kv_per_cube, "of the short kernels: KV heads that a CUBE owns: 1, 2, 4 or 8")
      ->check(in_range(1, 8))
      ->capture_default_str();
  knob("users", s.users, "requests under way at once: a PE goes on with the next while others reduce the last")
      ->check(in_range(1, 1024))
      ->capture_default_str();
  knob("query-begin", s.query_begin, "of prefill: the first position of the queries, with K or M")
      ->capture_default_str();
  knob("query-end", s.query_end, "the position behind the last one [the context]");
  knob("query-rows", s.query_rows, "rows (positions x heads) that a PE works on at a time")
      ->check(in_range(int64_t{1}, int64_t{1} << 20))
      ->capture_default_str();
  knob("within", s.within, "how the PEs of a CUBE reduce: tree, mesh, chain, ring or star")
      ->check(is_topology)
      ->capture_default_str();
  knob("across", s.across, "how the CUBEs of a group reduce")->check(is_topology)->capture_default_str();
  add(app, "--chip", s.chip, "a chip as YAML (see chips/) [the 4 SIPs of ADR-0060]");
}

void add_sim_run_flags(CLI::App& app, SimRunSettings& s) {
  add_kernel(app, s)->required();
  add_sim_flags(app, s);
  add(app, "--auto", s.automatic,
      "of decode: choose the kernel (short or long, one PE or several, one shot or tiles) by the largest context, and "
      "say why");
  add_knob(app, s, "threshold", s.threshold,
           "of --auto: what is long: a context's tokens a rank on 32 ranks (C = 4, P = 8), so 256K stands for 8192")
      ->capture_default_str();
  add(app, "--layers", s.layers, "layers of one shape: two are simulated, and the rest follows where they are equal")
      ->check(in_range(1, 10'000))
      ->capture_default_str();
  add(app, "--data", s.data, "compute, too: bf16 numbers made by counter");
  add(app, "--events", s.events, "by events alone: nothing in closed form");
  add(app, "--trace", s.trace, "file to write: what each engine did, for ui.perfetto.dev");
  add(app, "--oplog", s.oplog, "file to write: the same as binary columns");
  add(app, "--json", s.json, "one JSON object instead of the tables");
}

void add_sim_knockout_flags(CLI::App& app, SimSettings& s) {
  add_kernel(app, s)->capture_default_str();
  add_sim_flags(app, s);
}

void add_sim_sweep_flags(CLI::App& app, SimSweepSettings& s) {
  add_kernel(app, s)->capture_default_str();
  add_sim_flags(app, s);
  add(app, "--over", s.over,
      "quantities, the first along x: kernel, variant, context, cubes, pes, tile, group, users, topology, within, "
      "across, depth, or a value of the chip; each with usual values, or with these: cubes=1,8,topology")
      ->required();
  add(app, "--svg", s.svg, "file to write: the table as a chart, with the formula beside what was simulated");
}

void add_sim_milestone_flags(CLI::App& app, SimMilestoneSettings& s) {
  app.add_option("NAME", s.name, "gqa-llama70b")->required()->check(CLI::IsMember({"gqa-llama70b"}));
  add(app, "--device", s.device, "SIPs [the chip's]")->check(in_range(1, 64));
  add(app, "--chip", s.chip, "a chip as YAML (see chips/) [the 4 SIPs of ADR-0060]");
  add(app, "--context", s.context, "tokens of decode")->capture_default_str();
  add(app, "--prompt", s.prompt, "tokens of prefill")->capture_default_str();
  add(app, "--users", s.users, "requests under way at once in the multi_user panels")
      ->check(in_range(1, 1024))
      ->capture_default_str();
  add(app, "--layers", s.layers, "layers of one shape: two are simulated, and the rest follows")
      ->check(in_range(1, 1024))
      ->capture_default_str();
}

void add_sim_export_flags(CLI::App& app, SimExportSettings& s) {
  app.add_option("OPLOG", s.oplog, "what sim run --oplog wrote")->required();
  add(app, "--sqlite", s.sqlite, "database to write, for questions in SQL (docs/simulator.md has some)")->required();
}

void add_probe_flags(CLI::App& app, ProbeSettings& s) {
  add(app, "--out", s.out, "file to write, for coprime plan --machine [standard output]");
}

void add_synth_flags(CLI::App& app, SynthSettings& s) {
  add(app, "--config", s.config, "a folder with a config.json, or the name of a shape (llama-3.1-8b, qwen3.8-27b, ...)")
      ->required();
  add(app, "--format", s.format, "of the weights; quark-mxfp4: with FP8 a row in the MTP layer; fp8-block: 128 x 128")
      ->check(CLI::IsMember({"bf16", "f32", "quark-mxfp4", "fp8-block", "fp8-channel"}))
      ->capture_default_str();
  add(app, "--out", s.out, "a new folder")->required();
  add(app, "--headers-only", s.headers_only, "names, shapes and sizes alone: the data takes no room on the disk");
  add(app, "--layers", s.layers, "only the first so many; 0: all")->check(in_range(0, 4096))->capture_default_str();
  add(app, "--seed", s.seed, "of the weights: the same bytes everywhere")
      ->check(in_range(uint64_t{0}, kMaxSeed))
      ->capture_default_str();
  add(app, "--bf16-mtp", s.bf16_mtp, "the MTP layer stays BF16 in a quantised format");
}

void add_rank_flags(CLI::App& app, RankSettings& s) {
  add(app, "--join", s.join, "HOST:PORT where the front listens (--listen)")->required();
  add(app, "--key-file", s.key_file, "key of the world; - reads it from standard input");
  add(app, "--model", s.model, "the model's folder or GGUF file on this host [the front's path]");
  add(app, "--threads", s.threads, "0: as the front says")->check(in_range(0, 1024))->capture_default_str();
  add_verbs_flags(app, s.verbs, " [as the front says]");
  add(app, "--rank", s.rank, "the rank to be; -1: any that is free")
      ->check(in_range(-1, kMaxRanks - 1))
      ->capture_default_str();
  add(app, "--once", s.once, "end with the first world instead of joining again");
}

void add_check_flags(CLI::App& app, CheckSettings& s) {
  add(app, "--model", s.model, "the model: a folder with config.json and safetensors, or a GGUF file")->required();
  add(app, "--ranks", s.ranks, "number of ranks")->check(in_range(1, kMaxRanks))->required();
  add(app, "--pad-for", s.pad_for, "widen the geometry for this many ranks; 0: as many as --ranks")
      ->check(in_range(0, kMaxRanks))
      ->capture_default_str();
  add(app, "--mlp-width", s.mlp_width, "padded width of the MLP; 0: by rule")
      ->check(in_range(int64_t{0}, kMaxCount))
      ->capture_default_str();
  add(app, "--drafter", s.drafter, "folder of a DFlash drafter, padded with the model");
  add(app, "--tensors", s.tensors, "also pad one real tensor of each rule, and compare it with the file byte by byte");
  add(app, "--json", s.json, "one JSON object instead of the table");
}

void add_quantize_flags(CLI::App& app, QuantizeSettings& s) {
  add(app, "--model", s.model, "the model: a folder with config.json and safetensors in BF16, F16 or F32")->required();
  add(app, "--to", s.to,
      "mxfp4: as AMD Quark; fp8-block: scales of 128 x 128; fp8-channel: a scale a row, as compressed-tensors")
      ->check(CLI::IsMember({"mxfp4", "fp8-block", "fp8-channel"}))
      ->required();
  add(app, "--out", s.out, "a new folder for the result")->required();
}

void add_key_flags(CLI::App& app, KeySettings& s) {
  app.add_option("file", s.file, "a new file, readable by its owner only")->required();
}

std::optional<LaunchedProcess> RanksSettings::launched() const {
  if (launcher == "none") return std::nullopt;
  return launched_process([](const char* name) { return std::getenv(name); }, ::getppid());
}

void RanksSettings::meet_by_pmix() {
  if (!listen.empty() || !key_file.empty()) return;
  pmix = PmixJob::join([](const char* name) { return std::getenv(name); });
}

MeetingPoint RanksSettings::launched_meeting(const LaunchedProcess& job) const {
  if (!listen.empty()) return {.endpoint = parse_endpoint(listen)};
  return {.socket_name = fmt::format("coprime/{}/{}", ::geteuid(), job.job)};
}

std::optional<SecretKey> RanksSettings::key() const {
  if (key_file.empty()) return std::nullopt;
  return read_key_file(key_file);
}

std::optional<SecretKey> RankSettings::key() const {
  if (key_file.empty()) return std::nullopt;
  return key_file == "-" ? read_key(0, "standard input") : read_key_file(key_file);
}

RemoteOptions RanksSettings::remote_options() const {
  RemoteOptions result{.ranks = remote, .key = key(), .ssh = ssh, .timeout_ms = join_timeout * 1000};
  if (const auto job = launched()) {
    if (!hosts.empty() || remote != 0)
      fail(ErrorKind::kUsage,
           "{} started the ranks: leave --hosts and --remote away, or ignore it with --launcher none", job->launcher);
    if (ranks && *ranks != job->ranks)
      fail(ErrorKind::kUsage, "--ranks {}, and {} started {} processes: leave the flag away", *ranks, job->launcher,
           job->ranks);
    result.ranks = job->ranks - 1;
    result.meet = launched_meeting(*job);
    if (pmix) {
      result.meet = {.endpoint = {"0.0.0.0", 0}};
      result.key = make_secret_key();
      result.announce = [pmix = pmix, key = *result.key, timeout_s = join_timeout](const Endpoint& door) {
        pmix->give(to_text(make_invitation(key, door.port)), timeout_s);
      };
    }
    return result;
  }
  if (!hosts.empty()) {
    result.hosts = read_hosts_file(hosts);
    for (const HostLine& host : result.hosts) result.ranks += host.ranks;
    if (!result.key) result.key = make_secret_key();
  }
  if (result.ranks == 0) {
    if (!listen.empty())
      fail(ErrorKind::kUsage, "--listen {}: give --remote or --hosts, too: how many ranks join", listen);
    return result;
  }
  if (listen.empty()) fail(ErrorKind::kUsage, "{} ranks are to join: give --listen HOST:PORT, too", result.ranks);
  result.meet.endpoint = parse_endpoint(listen);
  return result;
}

int RanksSettings::count(const RemoteOptions& from_elsewhere, int least) const {
  const auto job = launched();
  const int all = job ? job->ranks : ranks.value_or(std::max(from_elsewhere.ranks, least));
  if (from_elsewhere.ranks > all)
    fail(ErrorKind::kUsage, "{} ranks are to join a world of {}: raise --ranks", from_elsewhere.ranks, all);
  return all;
}

Link RanksSettings::wish() const {
  for (const Link wish : {Link::kShm, Link::kTcp, Link::kVerbs, Link::kUcx})
    if (link == link_name(wish)) return wish;
  return Link::kAuto;
}

MathMode math_of(std::string_view name) {
  return name == "f32" ? MathMode::kF32 : name == "fast" ? MathMode::kFast : MathMode::kSplit;
}

DType kv_type_of(std::string_view name) {
  return name == "f16" ? DType::kF16 : name == "bf16" ? DType::kBF16 : name == "fp8" ? DType::kF8E4M3 : DType::kF32;
}

Isa isa_of(std::string_view name) {
  return name == "reference" ? Isa::kReference
         : name == "avx2"    ? Isa::kAvx2
         : name == "avx512"  ? Isa::kAvx512
                             : Isa::kAmx;
}

WorldOptions WorldSettings::options() const {
  WorldOptions options;
  options.model = model;
  options.remote = ranks.remote_options();
  // Of this host alone and by nobody's word: one for each of its nodes.
  const int least = options.remote.ranks == 0 ? default_ranks(read_host_cores()) : 1;
  options.plan = {.ranks = ranks.count(options.remote, std::min(least, kMaxRanks)),
                  .pad_for = pad_for,
                  .mlp_width = mlp_width,
                  .exact = exact};
  options.link = ranks.wish();
  options.math = math_of(math);
  options.kv_type = kv_type_of(kv);
  options.threads = threads;
  options.isa = {isa_of(isa)};
  options.max_rows = prefill_chunk;
  options.gate_timeout_ms = ranks.gate_timeout_ms;
  options.port = ranks.port;
  options.verbs = ranks.verbs;
  options.hash_gates = hash_gates;
  options.wire_auth = ranks.wire_auth;
  options.gate_profile = gate_profile;
  options.gate_trace = gate_trace;
  options.report = print_report;
  return options;
}

}  // namespace coprime
