// A chat template, compiled and run over a conversation with a tool's call.
#include "template/chat_template.h"

#include <optional>

#include "fuzz.h"

namespace {

constexpr std::string_view kConversation = R"({
  "messages": [{"role": "system", "content": "Be brief."},
               {"role": "user", "content": "What is <|im_end|> 6 times 7?"},
               {"role": "assistant", "content": "", "reasoning_content": "multiply",
                "tool_calls": [{"type": "function", "function": {"name": "times", "arguments": {"a": 6, "b": [7]}}}]},
               {"role": "tool", "content": "42"}],
  "tools": [{"type": "function", "function": {"name": "times", "parameters": {"type": "object"}}}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  std::optional<ChatTemplate> chat;
  fuzz(ErrorKind::kModel, [&] {
    chat = ChatTemplate::parse(text_of(data, size), "the template", {{"bos_token", "<s>"}});
  });
  if (!chat) return 0;
  try {
    const RenderedChat rendered = chat->render(kConversation, "the conversation", {});
    size_t end = 0;
    for (const TextRange& range : rendered.foreign) {
      if (range.begin < end || range.end <= range.begin || range.end > rendered.text.size()) std::abort();
      end = range.end;
    }
  } catch (const Error& error) {  // kUsage where the template refuses the conversation
    check_message(error.what());
  }
  return 0;
}
