#include "tokenizer/chat.h"

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace coprime {
namespace {

// What Python's str.strip() takes away.
bool is_stripped(uint32_t code_point) {
  return is_white_space(code_point) || (code_point >= 0x1c && code_point <= 0x1f);
}

std::string_view stripped(std::string_view text) {
  for (size_t at = 0; at < text.size() && is_stripped(next_code_point(text, &at)); at = 0) text.remove_prefix(at);
  for (size_t begin = 0; !text.empty() && is_stripped(previous_code_point(text, text.size(), &begin));) {
    text = text.substr(0, begin);
  }
  return text;
}

std::string chat_ml(std::span<const ChatMessage> messages, const std::string& system) {
  std::string text;
  if (!system.empty() && (messages.empty() || messages[0].role != "system"))
    text = fmt::format("<|im_start|>system\n{}<|im_end|>\n", system);
  for (const ChatMessage& message : messages) {
    text += fmt::format("<|im_start|>{}\n{}<|im_end|>\n", message.role, message.content);
  }
  return text + "<|im_start|>assistant\n";
}

std::string llama3(std::span<const ChatMessage> messages) {
  std::string text = "<|begin_of_text|>";
  for (const ChatMessage& message : messages) {
    text +=
        fmt::format("<|start_header_id|>{}<|end_header_id|>\n\n{}<|eot_id|>", message.role, stripped(message.content));
  }
  return text + "<|start_header_id|>assistant<|end_header_id|>\n\n";
}

bool has_all(const Tokenizer& tokenizer, std::initializer_list<std::string_view> tokens) {
  for (const std::string_view token : tokens) {
    if (tokenizer.find(token) < 0) return false;
  }
  return true;
}

}  // namespace

std::string default_system_message(std::string_view chat_template) {
  constexpr std::string_view kBegin = "<|im_start|>system", kEnd = "<|im_end|>";
  for (size_t at = 0; (at = chat_template.find(kBegin, at)) != chat_template.npos;) {
    at += kBegin.size();
    const size_t end = chat_template.find(kEnd, at);
    if (end == chat_template.npos) break;
    std::string message(chat_template.substr(at, end - at));
    if (message.find_first_of("'\"{}") != message.npos) continue;  // more than one string: no fixed text
    for (size_t escape; (escape = message.find("\\n")) != message.npos;) message.replace(escape, 2, "\n");
    if (message.starts_with('\n') && message.size() > 1) return message.substr(1);
  }
  return "";
}

std::string render_chat(const Tokenizer& tokenizer, std::span<const ChatMessage> messages) {
  for (const ChatMessage& message : messages) {
    for (const std::string_view part : {std::string_view(message.role), std::string_view(message.content)}) {
      if (const size_t bad = find_invalid_utf8(part); bad != std::string_view::npos) {
        fail(ErrorKind::kUsage, "a message is not UTF-8: byte {} is 0x{:02x}", bad,
             static_cast<unsigned char>(part[bad]));
      }
    }
  }
  if (has_all(tokenizer, {"<|im_start|>", "<|im_end|>"})) return chat_ml(messages, tokenizer.default_system_message());
  if (has_all(tokenizer, {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"})) {
    return llama3(messages);
  }
  fail(ErrorKind::kModel,
       "the vocabulary has neither ChatML's tokens (<|im_start|>, <|im_end|>) nor Llama-3's "
       "(<|start_header_id|>, <|end_header_id|>, <|eot_id|>): this model has no chat form");
}

}  // namespace coprime
