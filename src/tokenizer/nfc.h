// Unicode normalisation form C of valid UTF-8, by utf8proc's tables, in O(n log n) whatever the text: utf8proc's own
// ordering of marks is quadratic in the length of a run of them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/text_range.h"

namespace coprime {

// Returns `text` itself where it is known to be in the form already; otherwise the result is put into `buffer` and
// viewed.
std::string_view to_nfc(std::string_view text, std::string* buffer);

// The same, with `ranges` (ascending, disjoint) moved to where their text stands in the result. A range whose ends may
// compose with what is beside them grows by it.
std::string_view to_nfc(std::string_view text, std::string* buffer, std::vector<TextRange>* ranges);

}  // namespace coprime
