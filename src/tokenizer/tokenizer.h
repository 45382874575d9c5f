// Text to ids and back, as a model's tokenizer.json or GGUF file says: byte-level BPE with added tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_range.h"

namespace coprime {

class Tokenizer {
 public:
  // `model`/tokenizer.json, and tokenizer_config.json where there is one; or a GGUF file. Error(kModel) names the file
  // and the part that is not supported (another model type, normalizer, pre-tokenizer).
  static Tokenizer open(const std::filesystem::path& model);
  static Tokenizer parse(std::string_view tokenizer_json, const std::string& where);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Added tokens that stand in the text are recognised. With `add_special_tokens`, what the post-processor prepends
  // (Llama-3's <|begin_of_text|>) is prepended. Error(kUsage) for text that is not UTF-8, with the byte's position.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // One encoding of a text with parts that somebody else wrote (`foreign`: ascending, disjoint, cutting no code point):
  // a structural token is none where it touches such a part, and its text is encoded as any other. Structural are
  // special tokens, and added ones that `structure` spells out (a chat template's source: Qwen's <tool_call> and
  // <think> are no special tokens) unless they are white space.
  std::vector<int32_t> encode(std::string_view text, std::span<const TextRange> foreign,
                              std::string_view structure) const;

  // The bytes of one token, as they stand in the text: not always whole code points. Empty for an unknown id.
  std::string_view bytes(int32_t id) const;
  bool is_special(int32_t id) const;

  int32_t find(std::string_view token) const;  // -1 if there is none
  int32_t vocab_size() const;                  // the largest id + 1
  std::vector<int32_t> eos_ids() const;  // tokenizer_config.json's eos_token, if it is a token; GGUF: eos, eot, eom

 private:
  struct State;
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens, std::span<const TextRange> foreign,
                              std::string_view structure) const;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Joins tokens' bytes and gives out only whole code points: bytes that cannot become one are replaced by U+FFFD, those
// that still can wait.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);  // what has become whole
  std::string finish();                      // what waits, replaced
 private:
  std::string pending_;
};

}  // namespace coprime
