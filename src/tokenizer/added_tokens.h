// Finds added tokens in a text: from the left, the longest at each place, as Hugging Face's `tokenizers` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/regex.h"
#include "tokenizer/text_range.h"
#include "tokenizer/tokenizer_spec.h"

namespace coprime {

class AddedTokens {
 public:
  AddedTokens();
  void add(const AddedToken& token, std::string_view content);  // content: as it stands in the text that is searched
  bool empty() const { return tokens_.empty(); }

  // Calls `sink` for each part of a text in order: (id, the text it takes) or (-1, text between). A match that stands
  // within a word where it must not is passed over as plain text, and so is a token that `structural` holds for where
  // it touches a `plain` range (ascending, disjoint).
  using Sink = std::function<void(int32_t id, std::string_view part)>;
  using Structural = std::function<bool(int32_t id)>;
  void split(std::string_view text, std::span<const TextRange> plain, const Structural& structural, MatchRoom* room,
             const Sink& sink) const;

 private:
  // A trie: a node's children are linked through `sibling`; 0 is no node, and the root is node 0.
  struct Node {
    unsigned char byte = 0;
    uint32_t child = 0, sibling = 0;
    int32_t token = -1;  // an index of tokens_
  };
  struct Flags {
    int32_t id;
    bool single_word, lstrip, rstrip;
  };

  uint32_t child_of(uint32_t node, unsigned char byte) const;
  // The longest token at `at`; of those that end within `limit`, if one may not reach farther.
  int32_t longest_at(std::string_view text, size_t at, size_t limit, const Structural& structural,
                     size_t* length) const;
  bool within_word(std::string_view text, size_t begin, size_t end, MatchRoom* room) const;

  std::vector<Node> nodes_;
  std::vector<Flags> tokens_;
  std::vector<bool> first_bytes_;
  std::optional<Regex> word_;  // one word character; only if a token asks for it
};

}  // namespace coprime
