// The built-in chat forms: ChatML and Llama-3.
#pragma once

#include <span>
#include <string>

#include "tokenizer/tokenizer.h"

namespace coprime {

struct ChatMessage {
  std::string role, content;
};

// The text of a conversation up to where the assistant speaks, in the form whose tokens the vocabulary has
// (<|im_start|>: ChatML; <|start_header_id|>: Llama-3). Encode it without adding special tokens. Error(kModel) if it
// has neither, Error(kUsage) for a message that is not UTF-8. Tokens that a message spells out become those tokens.
// A ChatML conversation without a system message in front begins with the model's own, if it has one.
std::string render_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages);

// The system message that a ChatML template puts before a conversation without one: what stands between
// "<|im_start|>system" and "<|im_end|>" in one string of the template. Empty if there is none.
std::string default_system_message(std::string_view chat_template);

}  // namespace coprime
