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
std::string render_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages);

}  // namespace coprime
