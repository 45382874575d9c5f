#include "tools/partial_results.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/checkpoint.h"
#include "engine/facts.h"

namespace coprime {
namespace {

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

}  // namespace

std::string run_key(const EvalOptions& options, uint64_t data_hash, const std::string& settings) {
  const Checkpoint checkpoint = Checkpoint::open(options.world.model);
  const ShardPlan plan(read_model_shape(options.world.model), options.world.plan);
  std::string text;
  for (const Fact& fact : collect_facts(checkpoint, plan, {}, {}, [] {})) text += fact.value + "\n";
  const uint64_t model = hash_bytes(std::as_bytes(std::span(text)), text_hash(options.world.model, checkpoint));
  return fmt::format("data {:016x}, model and plan {:016x}, ranks {}, {} tokens, template {:?}, {}", data_hash, model,
                     plan.ranks(), options.max_tokens, options.chat_options, settings);
}

PartialResults::PartialResults(const std::string& out, const std::string& key) {
  if (out.empty()) return;
  path_ = out + ".partial";
  uint64_t whole = 0;
  if (std::filesystem::exists(path_)) {
    try {
      known_ = read_partial_answers(path_, key, &whole);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: delete it to begin again, or name another --out", error.what()));
    }
    std::error_code failed;
    std::filesystem::resize_file(path_, whole, failed);
    if (failed) fail(ErrorKind::kModel, "{}: cannot be written: {}", path_, failed.message());
  }
  file_.open(path_, std::ios::binary | std::ios::app);
  if (whole == 0) file_ << key << "\n";
  flush();
}

void PartialResults::add(const Answer& answer) {
  if (path_.empty()) return;
  file_ << answer_line(answer);
  flush();
}

size_t PartialResults::finish(size_t questions) {
  const auto later =
      static_cast<size_t>(std::distance(known_.lower_bound(static_cast<int64_t>(questions)), known_.end()));
  if (path_.empty() || later > 0) return later;
  file_.close();
  std::filesystem::remove(path_);
  return 0;
}

void PartialResults::flush() {
  if (!file_.flush()) fail(ErrorKind::kModel, "{}: cannot be written", path_);
}

}  // namespace coprime
