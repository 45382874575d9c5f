// coprime tokenize: ids out of text and back.
#include "tools/tokenize.h"
#include "base/error.h"
#include "cli/chat_input.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/text_input.h"

namespace coprime {
namespace {

// What the ids are, for a person.
std::string table_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  return token_table(tokenizer, ids) + fmt::format("{} tokens: {}\n", ids.size(), fmt::join(ids, " "));
}

// The text as the template writes it, then its tokens: those of special text that the conversation wrote are not
// special.
std::string conversation_table(const Tokenizer& tokenizer, const TokenizeSettings& settings) {
  const ChatTemplate chat = ChatTemplate::open(settings.model);
  const RenderedChat rendered = render_chat(chat, settings.chat);
  return rendered.text + "\n\n" +
         table_of(tokenizer, tokenizer.encode(rendered.text, rendered.foreign, rendered.structure));
}

}  // namespace

void run_tokenize(const TokenizeSettings& settings) {
  const Tokenizer tokenizer = Tokenizer::open(settings.model);
  if (settings.chat.given()) {
    if (settings.decode) fail(ErrorKind::kUsage, "--decode takes ids, of --text or --jsonl, and no conversation");
    return print(conversation_table(tokenizer, settings));
  }
  if (!settings.chat.options.empty())
    fail(ErrorKind::kUsage, "--chat-options goes with --chat or --messages: there is no template here");
  if (settings.text) {
    if (settings.decode) return print(text_of_ids(tokenizer, parse_ids(*settings.text)) + "\n");
    return print(table_of(tokenizer, tokenizer.encode(*settings.text, true)));
  }
  each_line(*settings.jsonl, [&](const std::string& line, size_t number) {
    std::string result;
    try {
      result = tokenize_line(tokenizer, line, settings.decode);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}, line {}: {}", *settings.jsonl, number, error.what()));
    }
    print(result + "\n");
  });
}

}  // namespace coprime
