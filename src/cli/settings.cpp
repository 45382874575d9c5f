#include "cli/settings.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>

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

constexpr int64_t kMaxCount = int64_t{1} << 40;
constexpr uint64_t kMaxSeed = UINT64_MAX;

// A rank may be another host's: what it says is shown as one line of plain text.
void print_report(int rank, std::string_view line) {
  std::string text(line);
  std::ranges::replace_if(
      text, [](unsigned char c) { return std::iscntrl(c) != 0; }, '?');
  fmt::print(stderr, "coprime: rank {}: {}\n", rank, text);
}

}  // namespace

void add_world_flags(CLI::App& app, WorldSettings& s) {
  add(app, "--model", s.model, "directory of the checkpoint: config.json, safetensors, tokenizer.json")->required();
  add(app, "--ranks", s.ranks, "number of ranks, 1 to 16, any of them")->capture_default_str();
  add(app, "--threads", s.threads, "threads a rank; 0 shares the cores out")
      ->check(in_range(0, 1024))
      ->capture_default_str();
  add(app, "--link", s.link, "what joins the ranks")->check(CLI::IsMember({"shm", "tcp"}))->capture_default_str();
  add(app, "--math", s.math, "arithmetic of the matrix products")->check(CLI::IsMember({"f32"}))->capture_default_str();
  add(app, "--kv", s.kv, "type of cached keys and values")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
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
  add(app, "--gate-timeout-ms", s.gate_timeout_ms, "how long a peer may stand still before it is given up")
      ->check(in_range(1, 600000))
      ->capture_default_str();
  add(app, "--port", s.port, "tcp: rank r listens on this port plus r of the loopback; 0: any")
      ->check(in_range(0, 65519))
      ->capture_default_str();
  add(app, "--isa", s.isa, "limit of the instruction set")
      ->check(CLI::IsMember({"best", "avx512", "avx2", "reference"}))
      ->capture_default_str();
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
  add(*prompt, "--chat", s.chat, "a user's message, put in the model's chat form");
  add(*prompt, "--prompt-file", s.prompt_file, "file with the text to continue; - is standard input");
  prompt->require_option(1);
  add(app, "--max-tokens", s.max_tokens, "0: to the end of the context")
      ->check(in_range(int64_t{0}, kMaxCount))
      ->capture_default_str();
  const std::string from_model = " [generation_config.json]";
  add(app, "--temperature", s.temperature, "0 is greedy" + from_model)->check(in_range(0.0, 100.0));
  add(app, "--top-k", s.top_k, "only the k most probable; 0: all" + from_model)->check(in_range(0, 1 << 24));
  add(app, "--top-p", s.top_p, "only the most probable with this mass" + from_model)->check(in_range(0.0, 1.0));
  add(app, "--min-p", s.min_p, "only what has this share of the most probable" + from_model)->check(in_range(0.0, 1.0));
  add(app, "--seed", s.seed, "of the draws [random]")->check(in_range(uint64_t{0}, kMaxSeed));
  add(app, "--stop", s.stops, "end before this text; may be given again")->take_all();
  add(app, "--stats", s.stats, "a table of geometry, memory, speed and gates, on standard error");
  add(app, "--trace", s.trace,
      "file to write: what all ranks did in the first step and in a step of decode, for ui.perfetto.dev");
  add(app, "--json", s.json, "one JSON object instead of the streaming text");
}

void add_logits_flags(CLI::App& app, LogitsSettings& s) {
  add(app, "--ids", s.ids, "FILE.safetensors:NAME of an i32 or i64 tensor [batch, T] or [T]")->required();
  add(app, "--out", s.out, "safetensors file to write: `logits`, f32, the ids' shape and the vocabulary")->required();
}

WorldOptions WorldSettings::options() const {
  WorldOptions options;
  options.model = model;
  options.plan = {.ranks = ranks, .pad_for = pad_for, .mlp_width = mlp_width, .exact = exact};
  options.link = link == "tcp" ? Link::kTcp : Link::kShm;
  options.kv_type = kv == "f16" ? DType::kF16 : kv == "bf16" ? DType::kBF16 : DType::kF32;
  options.threads = threads;
  options.isa = {isa == "reference" ? Isa::kReference : isa == "avx2" ? Isa::kAvx2 : Isa::kAvx512};
  options.max_rows = prefill_chunk;
  options.gate_timeout_ms = gate_timeout_ms;
  options.port = port;
  options.hash_gates = hash_gates;
  options.gate_profile = gate_profile;
  options.gate_trace = gate_trace;
  if (gate_profile || gate_trace) options.on_report = print_report;
  return options;
}

}  // namespace coprime
