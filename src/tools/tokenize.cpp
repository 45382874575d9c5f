#include "tools/tokenize.h"

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "json/json.h"

namespace coprime {
namespace {

void check_id(const Tokenizer& tokenizer, int64_t id, ErrorKind kind) {
  if (id < 0 || id >= tokenizer.vocab_size() || tokenizer.bytes(static_cast<int32_t>(id)).empty())
    fail(kind, "{} is no token's id: the vocabulary's lie from 0 to {}", id, tokenizer.vocab_size() - 1);
}

std::string whole_text(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  Utf8Stream stream;
  std::string text;
  for (const int32_t id : ids) text += stream.push(tokenizer.bytes(id));
  return text + stream.finish();
}

}  // namespace

std::string tokenize_line(const Tokenizer& tokenizer, std::string_view line, bool decode) {
  const JsonDocument document(line, "the line");
  const JsonNode root = document.node();
  const JsonNode node = root.need(decode ? "ids" : "text");
  if (!decode) {
    try {
      return nlohmann::json{{"ids", tokenizer.encode(node.text(), true)}}.dump();
    } catch (const Error& error) {
      throw Error(ErrorKind::kModel, error.what());
    }
  }
  std::vector<int32_t> ids;
  for (const JsonNode& each : node.items()) {
    ids.push_back(static_cast<int32_t>(each.integer(0, std::numeric_limits<int32_t>::max())));
    check_id(tokenizer, ids.back(), ErrorKind::kModel);
  }
  return nlohmann::json{{"text", whole_text(tokenizer, ids)}}.dump();
}

std::string token_table(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  std::string table;
  for (const int32_t id : ids)
    table += fmt::format("{:>8}  {:?}{}\n", id, tokenizer.bytes(id), tokenizer.is_special(id) ? "  special" : "");
  return table;
}

std::string text_of_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  for (const int32_t id : ids) check_id(tokenizer, id, ErrorKind::kUsage);
  return whole_text(tokenizer, ids);
}

std::vector<int32_t> parse_ids(std::string_view text) {
  std::vector<int32_t> ids;
  for (size_t at = 0; (at = text.find_first_not_of(" ,\t\n[]", at)) != text.npos;) {
    const size_t end = std::min(text.find_first_of(" ,\t\n[]", at), text.size());
    int32_t id = -1;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end)
      fail(ErrorKind::kUsage, "{:?} is no id: give numbers with spaces between them",
           text.substr(at, std::min<size_t>(end - at, 40)));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

}  // namespace coprime
