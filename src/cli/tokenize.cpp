// coprime tokenize: ids out of text and back.
#include "tools/tokenize.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/text_input.h"

namespace coprime {

void run_tokenize(const TokenizeSettings& settings) {
  const Tokenizer tokenizer = Tokenizer::open(settings.model);
  if (settings.text) {
    if (settings.decode) return print(text_of_ids(tokenizer, parse_ids(*settings.text)) + "\n");
    const std::vector<int32_t> ids = tokenizer.encode(*settings.text, true);
    return print(token_table(tokenizer, ids) + fmt::format("{} tokens: {}\n", ids.size(), fmt::join(ids, " ")));
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
