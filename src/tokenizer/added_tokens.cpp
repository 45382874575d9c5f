#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace coprime {

AddedTokens::AddedTokens() : nodes_(1), first_bytes_(256) {}

uint32_t AddedTokens::child_of(uint32_t node, unsigned char byte) const {
  uint32_t child = nodes_[node].child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].sibling;
  return child;
}

void AddedTokens::add(const AddedToken& token, std::string_view content) {
  if (content.empty()) return;
  first_bytes_[static_cast<unsigned char>(content[0])] = true;
  uint32_t node = 0;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = child_of(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({byte, 0, nodes_[node].child, -1});
      nodes_[node].child = child;
    }
    node = child;
  }
  if (nodes_[node].token < 0)
    nodes_[node].token = static_cast<int32_t>(tokens_.size());  // the first of equal ones stays
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
  if (token.single_word && !word_)
    word_.emplace("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]", "single_word");
}

int32_t AddedTokens::longest_at(std::string_view text, size_t at, size_t limit, const Structural& structural,
                                size_t* length) const {
  int32_t found = -1;
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    node = child_of(node, static_cast<unsigned char>(text[i]));
    if (node == 0) break;
    const int32_t token = nodes_[node].token;
    if (token >= 0 && (i < limit || !structural(tokens_[static_cast<size_t>(token)].id))) {
      found = nodes_[node].token;
      *length = i + 1 - at;
    }
  }
  return found;
}

bool AddedTokens::within_word(std::string_view text, size_t begin, size_t end, MatchRoom* room) const {
  size_t first = 0, last = 0;
  if (begin > 0) {
    previous_code_point(text, begin, &first);
    if (word_->find(text.substr(first, begin - first), 0, room, &first, &last)) return true;
  }
  if (end == text.size()) return false;
  size_t after = end;
  next_code_point(text, &after);
  return word_->find(text.substr(end, after - end), 0, room, &first, &last);
}

void AddedTokens::split(std::string_view text, std::span<const TextRange> plain, const Structural& structural,
                        MatchRoom* room, const Sink& sink) const {
  size_t done = 0;
  size_t at = 0;
  while (at < text.size()) {
    while (!plain.empty() && plain.front().end <= at) plain = plain.subspan(1);
    const size_t limit = plain.empty() ? text.size() : std::max(plain.front().begin, at);  // structure ends here
    size_t length = 0;
    const int32_t match =
        first_bytes_[static_cast<unsigned char>(text[at])] ? longest_at(text, at, limit, structural, &length) : -1;
    if (match < 0) {
      ++at;
      continue;
    }
    const Flags& token = tokens_[static_cast<size_t>(match)];
    size_t begin = at, end = at + length;
    at = end;
    if (token.single_word && within_word(text, begin, end, room)) continue;
    if (token.lstrip) {
      size_t previous = 0;
      while (begin > done && is_white_space(previous_code_point(text, begin, &previous))) begin = previous;
    }
    if (token.rstrip) {
      for (size_t next = end; end < text.size() && is_white_space(next_code_point(text, &next));) end = next;
    }
    if (begin > done) sink(-1, text.substr(done, begin - done));
    sink(token.id, text.substr(begin, end - begin));
    done = end;
  }
  if (done < text.size()) sink(-1, text.substr(done));
}

}  // namespace coprime
