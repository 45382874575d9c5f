// A text, through the embedded model's tokenizer: refused where it is not UTF-8, else its tokens are the text again.
#include "fuzz.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  static const Tokenizer tokenizer = Tokenizer::open(COPRIME_SOURCE_DIR "/models/mini-qwen35");
  return fuzz(ErrorKind::kUsage, [&] {
    std::string joined;
    for (const int32_t id : tokenizer.encode(text_of(data, size), false)) joined += tokenizer.bytes(id);
    // Normalisation is idempotent: the tokens of what came back are those that gave it.
    std::string again;
    for (const int32_t id : tokenizer.encode(joined, false)) again += tokenizer.bytes(id);
    if (again != joined) std::abort();
  });
}
