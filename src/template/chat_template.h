// A model's chat template: the text of a conversation as the model was trained on it, written by the checkpoint's own
// Jinja template.
//
// The subset of Jinja covers the templates of Qwen2.5 to Qwen3.8, Llama-3 and SmolLM2; whatever else stands in a
// template is refused with its line and name. Loops, recursion, memory and output are bounded (template/value.h).
//
// What stems from the conversation is marked in the result, through every operation of the template: a tokenizer then
// takes special tokens in it for plain text. A message's role is the template's own where it is one of the protocol's.
#pragma once

#include <ctime>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_range.h"

namespace coprime {

struct RenderedChat {
  std::string text;                // encode it without adding special tokens: the template wrote them
  std::vector<TextRange> foreign;  // of the conversation's own: ascending, disjoint
  std::string_view structure;      // the template's source, which lives as long as the template
};

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string variables;  // a JSON object of what the template asks for: {"enable_thinking": false}; empty: nothing
  std::tm now{};          // what strftime_now writes
};

class ChatTemplate {
 public:
  // Of a folder: chat_template.jinja, else tokenizer_config.json's chat_template (a string, or a list with names, of
  // which "tool_use" is taken where there are tools and "default" else). Of a GGUF file: tokenizer.chat_template.
  // Error(kModel) where there is none, or its path, line and the construct that is not supported.
  static ChatTemplate open(const std::filesystem::path& model);
  // `special_tokens`: bos_token and the like, by name.
  struct Variable {
    std::string name, text;
  };
  static ChatTemplate parse(std::string_view source, const std::string& where,
                            std::vector<Variable> special_tokens = {});

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // `conversation` is JSON: a list of messages {"role", "content", "tool_calls", ...}, or an object with "messages",
  // "tools" and whatever else the template asks for. A tool call's arguments may be an object or, as OpenAI's clients
  // send them, JSON in a string. Error(kUsage) for what is no such JSON (`where` names it), or where the template
  // refuses the conversation; Error(kModel) with the template's path and line where it cannot be run.
  RenderedChat render(std::string_view conversation, const std::string& where, const ChatOptions& options) const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A conversation of one user's message. Error(kUsage) for text that is not UTF-8.
std::string conversation_of(std::string_view user_message);

// The current local time, for ChatOptions.
std::tm local_time();

}  // namespace coprime
