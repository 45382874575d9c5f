// Text to ids and back, a line of JSON at a time, or as a table for a person.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace coprime {

// {"text": "..."} gives {"ids": [...]}; with `decode`, {"ids": [...]} gives {"text": "..."}, bytes that are no UTF-8
// replaced by U+FFFD. Special tokens in a text are recognised, and those of the model put around it, as Hugging Face's
// encode does. Error(kModel) for a line that is no such object, or an id that the vocabulary lacks.
std::string tokenize_line(const Tokenizer& tokenizer, std::string_view line, bool decode);

// A line a token: its id, its text quoted, and whether it is special.
std::string token_table(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// The text of ids. Error(kUsage) for an id that the vocabulary lacks.
std::string text_of_ids(const Tokenizer& tokenizer, std::span<const int32_t> ids);

// Ids in a text, with spaces or commas between them. Error(kUsage) for anything else.
std::vector<int32_t> parse_ids(std::string_view text);

}  // namespace coprime
