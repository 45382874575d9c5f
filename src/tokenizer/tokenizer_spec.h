// What a tokenizer.json, or a GGUF file, says, read and checked, before anything is built from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coprime {

struct VocabToken {
  int32_t id;
  std::string text;  // in the byte alphabet, or outside it: then no text reaches it
};

struct Merge {
  int32_t left, right, result;
};

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // only where no word character stands beside it
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // ... and after it
  bool normalized = false;   // looked for in the normalised text
  bool special = false;
};

// One step cuts each piece of the step before it.
struct PreTokenizerStep {
  enum class Kind {
    kSplit,         // matches of the pattern, and what is between them
    kDigits,        // runs of numeric code points, and what is between them
    kEachDigit,     // each numeric code point on its own
    kSpaceInFront,  // cuts nothing: a space goes before a piece that has none
  };
  Kind kind;
  std::string pattern;
};

// Ids lie in [0, kMaxTokens) and belong to one text each; merges name tokens of the vocabulary.
struct TokenizerSpec {
  static constexpr int32_t kMaxTokens = 1 << 24;

  std::vector<VocabToken> vocab;
  std::vector<Merge> merges;   // by rank
  bool ignore_merges = false;  // a piece that is a token as a whole is that token
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<PreTokenizerStep> steps;
  std::vector<int32_t> prefix, suffix;  // what the post-processor puts around a text
  // Of GGUF; a tokenizer.json does not hold it.
  std::vector<int32_t> eos;
};

// Error(kModel) names `where`, the key, what was found and what is supported. Truncation and padding are the caller's
// affair and not read.
TokenizerSpec parse_tokenizer_json(std::string_view json, const std::string& where);

// The eos_token of a tokenizer_config.json (a string, or an object with `content`); empty if there is none.
std::string parse_eos_token(std::string_view json, const std::string& where);

}  // namespace coprime
