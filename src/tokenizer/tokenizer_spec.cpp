#include "tokenizer/tokenizer_spec.h"

#include <algorithm>
#include <array>
#include <unordered_set>

#include "base/error.h"
#include "json/json.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pipeline_spec.h"
#include "tokenizer/text_table.h"

namespace coprime {
namespace {

constexpr size_t kMaxDepth = 1024;  // a tokenizer's parts nest

TextTable read_vocab(const JsonNode& vocab, TokenizerSpec* spec) {
  const simdjson::dom::object object = vocab.object();
  size_t count = 0;
  for (auto it = object.begin(); it != object.end(); ++it) ++count;  // size() stops at 2^24 - 1
  if (count == 0) fail(ErrorKind::kModel, "{}: there is no token", vocab.path());
  TextTable ids(count);
  spec->vocab.reserve(count);
  for (const auto& [text, value] : object) {
    int64_t id = -1;
    if (value.get(id) != simdjson::SUCCESS || id < 0 || id >= TokenizerSpec::kMaxTokens) {
      token_id(JsonNode(value, vocab.path_of(quoted(text))));  // says what is wrong
    }
    if (!ids.insert(text, static_cast<int32_t>(id))) {
      fail(ErrorKind::kModel, "{}: the token {} stands there twice", vocab.path(), quoted(text));
    }
    spec->vocab.push_back({static_cast<int32_t>(id), std::string(text)});
  }
  return ids;
}

// "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_parts(simdjson::dom::element value, const std::string& path,
                                                          size_t rank) {
  const auto refuse = [&] { JsonNode(value, fmt::format("{}[{}]", path, rank)).refuse("\"A B\" or [\"A\", \"B\"]"); };
  std::string_view left, right;
  simdjson::dom::array pair;
  if (value.get(left) == simdjson::SUCCESS) {
    const size_t space = left.find(' ');
    if (space == std::string_view::npos) refuse();
    right = left.substr(space + 1);
    left = left.substr(0, space);
    if (right.find(' ') != std::string_view::npos) refuse();
  } else if (value.get(pair) != simdjson::SUCCESS || pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS ||
             pair.at(1).get(right) != simdjson::SUCCESS) {
    refuse();
  }
  if (left.empty() || right.empty()) refuse();
  return {left, right};
}

void read_merges(const JsonNode& merges, const TextTable& ids, TokenizerSpec* spec) {
  std::string joined;
  for (const simdjson::dom::element value : merges.array()) {
    const size_t rank = spec->merges.size();
    const auto [left, right] = merge_parts(value, merges.path(), rank);
    joined.assign(left).append(right);
    const auto id_of = [&](std::string_view text) {
      const int32_t id = ids.find(text);
      if (id < 0)
        fail(ErrorKind::kModel, "{}[{}]: {} is no token of the vocabulary", merges.path(), rank, quoted(text));
      return id;
    };
    spec->merges.push_back({id_of(left), id_of(right), id_of(joined)});
  }
}

// Whether each byte has a token: then no unknown token can arise.
bool all_bytes_have_tokens(const TokenizerSpec& spec) {
  std::array<bool, 256> have{};
  for (const VocabToken& token : spec.vocab) {
    if (token.text.size() > 2) continue;
    const auto bytes = bytes_of_token(token.text);
    if (bytes && bytes->size() == 1) have[static_cast<unsigned char>((*bytes)[0])] = true;
  }
  return std::find(have.begin(), have.end(), false) == have.end();
}

TextTable read_model(const JsonNode& model, TokenizerSpec* spec) {
  if (model.text_or("type", "BPE") != "BPE") model.need("type").refuse("BPE");
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text_or(key, "").empty()) model.need(key).refuse("null");
  }
  if (model.flag_or("byte_fallback", false))
    model.need("byte_fallback").refuse("false: the bytes have tokens of their own");
  if (const auto dropout = model.get("dropout")) {
    double rate = 1;
    if (dropout->value().get(rate) != simdjson::SUCCESS || rate != 0) dropout->refuse("null");
  }
  TextTable ids = read_vocab(model.need("vocab"), spec);
  read_merges(model.need("merges"), ids, spec);
  spec->ignore_merges = model.flag_or("ignore_merges", false);
  if (const auto unknown = model.get("unk_token"); unknown && !all_bytes_have_tokens(*spec)) {
    unknown->refuse("null, as some bytes have no token");
  }
  return ids;
}

void read_added(const JsonNode& tokens, const TextTable& ids, TokenizerSpec* spec) {
  std::unordered_set<std::string_view> seen;
  for (const JsonNode& node : tokens.items()) {
    AddedToken token;
    const std::string_view content = node.need("content").text();
    token.id = token_id(node.need("id"));
    token.content = content;
    token.single_word = node.flag_or("single_word", false);
    token.lstrip = node.flag_or("lstrip", false);
    token.rstrip = node.flag_or("rstrip", false);
    token.special = node.flag_or("special", false);
    token.normalized = node.flag_or("normalized", !token.special);
    if (content.empty()) node.need("content").refuse("some text");
    const int32_t in_vocab = ids.find(content);
    if (in_vocab >= 0 && in_vocab != token.id) {
      node.need("id").refuse(fmt::format("{}, as the vocabulary says", in_vocab));
    }
    if (!seen.insert(content).second) node.need("content").refuse("each added token once");
    spec->added.push_back(std::move(token));
  }
}

// One id, one text.
void check_ids(const TokenizerSpec& spec, const std::string& where) {
  std::vector<std::pair<int32_t, std::string_view>> texts;
  texts.reserve(spec.vocab.size() + spec.added.size());
  for (const VocabToken& token : spec.vocab) texts.emplace_back(token.id, token.text);
  for (const AddedToken& token : spec.added) texts.emplace_back(token.id, token.content);
  std::sort(texts.begin(), texts.end());
  for (size_t i = 1; i < texts.size(); ++i) {
    if (texts[i].first == texts[i - 1].first && texts[i].second != texts[i - 1].second) {
      fail(ErrorKind::kModel, "{}: the id {} belongs to two tokens, {} and {}", where, texts[i].first,
           quoted(texts[i - 1].second), quoted(texts[i].second));
    }
  }
  for (const std::vector<int32_t>& list : {spec.prefix, spec.suffix}) {
    for (const int32_t id : list) {
      const auto found = std::lower_bound(texts.begin(), texts.end(), std::pair(id, std::string_view()));
      if (found == texts.end() || found->first != id) {
        fail(ErrorKind::kModel, "{}: post_processor: {} is no token's id", where, id);
      }
    }
  }
}

}  // namespace

int32_t token_id(const JsonNode& node) {
  int64_t id = -1;
  if (node.value().get(id) != simdjson::SUCCESS || id < 0 || id >= TokenizerSpec::kMaxTokens)
    node.refuse(fmt::format("a token id from 0 to {}", TokenizerSpec::kMaxTokens - 1));
  return static_cast<int32_t>(id);
}

TokenizerSpec parse_tokenizer_json(std::string_view json, const std::string& where) {
  const JsonDocument document(json, where, kMaxDepth);
  const JsonNode root = document.node();
  TokenizerSpec spec;
  const TextTable ids = read_model(root.need("model"), &spec);
  if (const auto added = root.get("added_tokens")) read_added(*added, ids, &spec);
  read_pipeline(root, &spec);
  check_ids(spec, where);
  return spec;
}

std::string parse_eos_token(std::string_view json, const std::string& where) {
  const JsonDocument document(json, where, kMaxDepth);
  const std::optional<JsonNode> token = document.node().get("eos_token");
  if (!token) return {};
  if (token->value().is_object()) return std::string(token->need("content").text());
  return std::string(token->text());
}

}  // namespace coprime
