#include "tokenizer/gguf_vocabulary.h"

#include <array>

#include "base/error.h"
#include "json/json.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/text_table.h"
#include "tokenizer/utf8.h"

namespace coprime {
namespace {

constexpr std::string_view kModelKey = "tokenizer.ggml.model", kPreKey = "tokenizer.ggml.pre",
                           kTokensKey = "tokenizer.ggml.tokens", kTypesKey = "tokenizer.ggml.token_type",
                           kMergesKey = "tokenizer.ggml.merges";

// What the file calls the kinds of its tokens.
enum TokenType : int64_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// What tokenizer.ggml.pre stands for: the parts of the model's tokenizer.json that the file does not repeat.
struct Pipeline {
  std::string_view name;
  bool each_digit;  // before the pattern
  std::string_view pattern;
  bool nfc, ignore_merges;
  bool add_bos;  // where the file does not say
};
constexpr auto kPipelines = std::to_array<Pipeline>({
    {"gpt-2", false, kByteLevelPattern, false, false, false},
    {"smollm", true, kByteLevelPattern, false, false, false},
    {"qwen2", false, kQwen2Pattern, true, false, false},
    {"qwen35", false, kQwen35Pattern, true, false, false},
    {"llama-bpe", false, kLlama3Pattern, false, true, true},
    {"llama3", false, kLlama3Pattern, false, true, true},
    {"llama-v3", false, kLlama3Pattern, false, true, true},
});

const Pipeline& find_pipeline(const GgufFile& file) {
  const auto name = file.string(kPreKey);
  std::string supported;
  for (const Pipeline& pipeline : kPipelines) {
    if (name && *name == pipeline.name) return pipeline;
    supported += (supported.empty() ? "" : ", ") + std::string(pipeline.name);
  }
  fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: one of {}", file.where(kPreKey),
       name ? coprime::quoted(*name) : "missing", supported);
}

class VocabularyReader {
 public:
  explicit VocabularyReader(const GgufFile& file) : file_(file), tokens_(read_tokens(file)), ids_(tokens_.size()) {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (find_invalid_utf8(tokens_[i]) != std::string_view::npos)
        fail(ErrorKind::kModel, "{}[{}] is not UTF-8", file.where(kTokensKey), i);
      if (!ids_.insert(tokens_[i], static_cast<int32_t>(i)))
        fail(ErrorKind::kModel, "{}: the token {} stands there twice", file.where(kTokensKey),
             coprime::quoted(tokens_[i]));
    }
  }

  // The named tokens stand in a text as they are; the others are what merges make.
  void tokens(TokenizerSpec* spec) const {
    const auto types = file_.integers(kTypesKey);
    if (types && types->size() != tokens_.size()) {
      fail(ErrorKind::kModel, "{} has {} entries; expected one a token, {}", file_.where(kTypesKey), types->size(),
           tokens_.size());
    }
    for (size_t i = 0; i < tokens_.size(); ++i) {
      const int64_t type = types ? (*types)[i] : kNormal;
      const auto id = static_cast<int32_t>(i);
      if (type < kNormal || type > kByte)
        fail(ErrorKind::kModel, "{}[{}] is {}; expected {} to {}", file_.where(kTypesKey), i, type, int64_t{kNormal},
             int64_t{kByte});
      if (type != kUnknown && type != kControl && type != kUserDefined) {
        spec->vocab.push_back({id, tokens_[i]});
        continue;
      }
      if (tokens_[i].empty())
        fail(ErrorKind::kModel, "{}[{}] is a named token without text", file_.where(kTokensKey), i);
      spec->added.push_back({.id = id, .content = tokens_[i], .special = type != kUserDefined});
    }
  }

  void merges(TokenizerSpec* spec) const {
    const auto merges = file_.strings(kMergesKey);
    if (!merges)
      fail(ErrorKind::kModel, "{} is missing; expected the merges of a byte-level BPE", file_.where(kMergesKey));
    for (const std::string& merge : *merges) {
      const size_t space = merge.find(' ');
      const std::string_view left = std::string_view(merge).substr(0, space);
      const std::string_view right = space == merge.npos ? "" : std::string_view(merge).substr(space + 1);
      if (left.empty() || right.empty() || right.find(' ') != right.npos) {
        fail(ErrorKind::kModel, "{}[{}] is {}; expected \"A B\"", file_.where(kMergesKey), spec->merges.size(),
             coprime::quoted(merge));
      }
      const std::string joined = std::string(left).append(right);
      spec->merges.push_back({id_of(left, spec), id_of(right, spec), id_of(joined, spec)});
    }
  }

  std::optional<int32_t> token_id(std::string_view key) const {
    const auto id = file_.integer(key, 0, static_cast<int64_t>(tokens_.size()) - 1);
    return id ? std::optional(static_cast<int32_t>(*id)) : std::nullopt;
  }
  int32_t required_id(std::string_view key, std::string_view flag) const {
    const auto id = token_id(key);
    if (!id) fail(ErrorKind::kModel, "{} is missing; expected a token's id, as {} is set", file_.where(key), flag);
    return *id;
  }

 private:
  static std::vector<std::string> read_tokens(const GgufFile& file) {
    auto tokens = file.strings(kTokensKey);
    if (!tokens || tokens->empty() || tokens->size() > static_cast<size_t>(TokenizerSpec::kMaxTokens)) {
      fail(ErrorKind::kModel, "{} has {} entries; expected 1 to {}", file.where(kTokensKey),
           tokens ? tokens->size() : 0, TokenizerSpec::kMaxTokens);
    }
    return std::move(*tokens);
  }

  int32_t id_of(std::string_view text, const TokenizerSpec* spec) const {
    const int32_t id = ids_.find(text);
    if (id < 0) {
      fail(ErrorKind::kModel, "{}[{}]: {} is no token of the vocabulary", file_.where(kMergesKey), spec->merges.size(),
           coprime::quoted(text));
    }
    return id;
  }

  const GgufFile& file_;
  const std::vector<std::string> tokens_;
  TextTable ids_;  // by text, which tokens_ holds
};

}  // namespace

TokenizerSpec read_gguf_vocabulary(const GgufFile& file) {
  const auto model = file.string(kModelKey);
  if (!model || *model != "gpt2") {
    fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: \"gpt2\" (byte-level BPE)",
         file.where(kModelKey), model ? coprime::quoted(*model) : "missing");
  }
  const Pipeline& pipeline = find_pipeline(file);
  const VocabularyReader reader(file);
  TokenizerSpec spec;
  reader.tokens(&spec);
  reader.merges(&spec);
  spec.ignore_merges = pipeline.ignore_merges;
  spec.nfc = pipeline.nfc;
  using Kind = PreTokenizerStep::Kind;
  if (pipeline.each_digit) spec.steps.push_back({Kind::kEachDigit, {}});
  if (file.boolean("tokenizer.ggml.add_space_prefix").value_or(false)) spec.steps.push_back({Kind::kSpaceInFront, {}});
  spec.steps.push_back({Kind::kSplit, std::string(pipeline.pattern)});
  if (file.boolean("tokenizer.ggml.add_bos_token").value_or(pipeline.add_bos))
    spec.prefix.push_back(reader.required_id("tokenizer.ggml.bos_token_id", "add_bos_token"));
  if (file.boolean("tokenizer.ggml.add_eos_token").value_or(false))
    spec.suffix.push_back(reader.required_id("tokenizer.ggml.eos_token_id", "add_eos_token"));
  for (const std::string_view key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (const auto id = reader.token_id(key)) spec.eos.push_back(*id);
  }
  return spec;
}

}  // namespace coprime
