// Text to ids and back, as a model's tokenizer.json or GGUF file says: byte-level BPE with added tokens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

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
  // (Llama-3's
  // <|begin_of_text|>) is prepended. Error(kUsage) for text that is not UTF-8, with the byte's position.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const;

  // The bytes of one token, as they stand in the text: not always whole code points. Empty for an unknown id.
  std::string_view bytes(int32_t id) const;
  bool is_special(int32_t id) const;

  int32_t find(std::string_view token) const;  // -1 if there is none
  int32_t vocab_size() const;                  // the largest id + 1
  std::vector<int32_t> eos_ids() const;  // tokenizer_config.json's eos_token, if it is a token; GGUF: eos, eot, eom
  // What a GGUF file's chat template puts before a conversation that has no system message; empty: nothing.
  const std::string& default_system_message() const;
  bool lacks_chat_template() const;  // a GGUF file that has none

 private:
  struct State;
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
