// tokenizer.json, and a text that goes through what it describes.
#include "fuzz.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  return fuzz(ErrorKind::kModel, [&] {
    const Tokenizer tokenizer = Tokenizer::parse(text_of(data, size), "tokenizer.json");
    for (const int32_t id : tokenizer.encode("<s>ab 12 caf\u00e9  \n aaaaaaaaaaaaaaaaaaaaab", true))
      if (id < 0 || id >= tokenizer.vocab_size()) std::abort();
  });
}
