// A pattern in the dialect of tokenizer.json, on a text that it is looked for in.
#include "tokenizer/regex.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  return fuzz(ErrorKind::kModel, [&] {
    const Regex regex(text_of(data, size), "pattern");
    MatchRoom room;
    constexpr std::string_view kText = "Sam's 12 caf\u00e9s,  aaaaaaaaaaaaaaaaaaaaaaaaaaab!\n\t";
    size_t from = 0, begin = 0, end = 0;
    while (from <= kText.size() && regex.find(kText, from, &room, &begin, &end)) {
      if (begin < from || end < begin || end > kText.size()) std::abort();
      if (end == begin) break;
      from = end;
    }
  });
}
