#include "tools/run_facts.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "engine/facts.h"
#include "json/json.h"

namespace coprime {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;
constexpr std::string_view kPlan = "hash of the shard plan";  // engine/facts.h

uint64_t hash_range(const InputFile& file, uint64_t bytes, uint64_t hash) {
  std::vector<std::byte> block;
  for (uint64_t at = 0; at < bytes; at += block.size()) {
    block.resize(std::min<uint64_t>(bytes - at, 1 << 20));
    file.read(at, block);
    hash = hash_bytes(block, hash);
  }
  return hash;
}

// What stands beside the tensors: of a GGUF file all before the first of them, of a folder its small files.
uint64_t text_hash(const std::filesystem::path& model, const Checkpoint& checkpoint) {
  uint64_t hash = 0;
  if (!std::filesystem::is_directory(model)) {
    uint64_t first = std::numeric_limits<uint64_t>::max();
    for (const Checkpoint::Located& each : checkpoint.tensors()) first = std::min(first, each.tensor->offset);
    const InputFile file = InputFile::open(model);
    return hash_range(file, std::min(first, file.bytes()), hash);
  }
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"}) {
    hash = hash_bytes(std::as_bytes(std::span(std::string_view(name))), hash);
    if (!std::filesystem::exists(model / name)) continue;
    const InputFile file = InputFile::open(model / name);
    hash = hash_range(file, file.bytes(), hash);
  }
  return hash;
}

std::string_view value_of(const RunFacts& facts, std::string_view name) {
  const auto found = std::ranges::find(facts, name, [](const auto& fact) { return std::string_view(fact.first); });
  return found == facts.end() ? std::string_view() : found->second;
}

}  // namespace

RunFacts run_facts(const EvalOptions& options, uint64_t data_hash, const RunFacts& settings) {
  const Checkpoint checkpoint = Checkpoint::open(options.world.model);
  const ShardPlan plan(read_model_shape(options.world.model), options.world.plan);
  std::string text, plan_hash;
  for (const Fact& fact : collect_facts(checkpoint, plan, {}, {}, [] {}))
    (fact.name == kPlan ? plan_hash : text) += fact.name == kPlan ? fact.value : fact.value + "\n";
  const uint64_t model = hash_bytes(std::as_bytes(std::span(text)), text_hash(options.world.model, checkpoint));
  RunFacts facts = {{"data", fmt::format("{:016x}", data_hash)},
                    {"model", fmt::format("{:016x}", model)},
                    {"plan", plan_hash},
                    {"ranks", std::to_string(plan.ranks())},
                    {"max_tokens", std::to_string(options.max_tokens)},
                    {"chat_options", options.chat_options}};
  facts.insert(facts.end(), settings.begin(), settings.end());
  return facts;
}

std::string one_line(const RunFacts& facts) {
  std::string line;
  for (const auto& [name, value] : facts) line += fmt::format("{}{} {:?}", line.empty() ? "" : ", ", name, value);
  return line;
}

std::filesystem::path facts_path(const std::filesystem::path& results) { return results.string() + ".run.json"; }

std::string facts_json(const RunFacts& facts, const EvalRun& run) {
  nlohmann::ordered_json json;
  for (const auto& [name, value] : facts) json["run"][name] = value;
  json["questions"] = run.answers.size();
  json["correct"] = run.correct;
  return json.dump(2) + "\n";
}

RunFacts read_facts(const std::filesystem::path& results) {
  const std::filesystem::path path = facts_path(results);
  RunFacts facts;
  if (!std::filesystem::exists(path)) return facts;
  const JsonDocument document(read_text_file(path, kMaxBytes), path.string());
  const JsonNode run = document.node().need("run");
  for (const auto& [name, value] : run.object())
    facts.emplace_back(std::string(name), std::string(run.need(name).text()));
  return facts;
}

std::string facts_that_differ(const RunFacts& base, const RunFacts& here) {
  if (base.empty()) return {};
  std::string text;
  if (value_of(base, "data") != value_of(here, "data"))
    text += "other data there: only the questions that stand at the same place in both files are compared\n";
  if (value_of(base, "model") != value_of(here, "model"))
    text += "another model there, or another version of coprime\n";
  for (const auto& [name, value] : here) {
    const std::string_view before = value_of(base, name);
    if (name != "data" && name != "model" && name != "plan" && before != value)
      text += fmt::format("{} {:?} there, {:?} here\n", name, before, value);
  }
  return text;
}

}  // namespace coprime
