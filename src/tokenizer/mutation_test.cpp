// Whatever a tokenizer.json holds, it is read or refused: no crash, no hang. Run under the asan preset to mean it.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "tokenizer/tokenizer.h"

namespace coprime {
namespace {

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  size_t below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random_); }

  // A change of bytes, of a stretch, or of one JSON word by another.
  void change(std::string* text) {
    static constexpr const char* kWords[] = {"null",          "true",      "-1",          "2147483648",
                                             "1e309",         "\"\"",      "{}",          "[]",
                                             "\"ByteLevel\"", "\"Split\"", "\"Digits\"",  "\"Sequence\"",
                                             "\"NFC\"",       "\"a\"",     "\"\\u0000\"", "\"(a+)+$\"",
                                             "\"\\ud800\"",   "\"type\"",  "0",           "570",
                                             "[\"a\",\"b\"]"};
    const size_t at = below(text->size());
    switch (below(6)) {
      case 0:
        (*text)[at] = static_cast<char>(below(256));
        break;
      case 1:
        text->erase(at, 1 + below(40));
        break;
      case 2:
        text->insert(at, text->substr(below(text->size()), below(60)));
        break;
      case 3:
        text->resize(at + 1);
        break;
      default: {  // the JSON word that begins next
        const size_t begin = text->find_first_of("\"0123456789tfn[{", at);
        if (begin == std::string::npos) break;
        size_t end = text->find_first_of((*text)[begin] == '"' ? "\"" : ",]}:", begin + 1);
        if (end == std::string::npos) break;
        if ((*text)[begin] == '"') ++end;
        text->replace(begin, end - begin, kWords[below(std::size(kWords))]);
      }
    }
  }

 private:
  std::mt19937 random_;
};

// Most of the bytes are vocabulary and merges: the changes fall on the head and the rest alike.
TEST(TokenizerMutations, each_changed_file_is_read_or_refused) {
  std::ifstream file(COPRIME_SOURCE_DIR "/models/mini-qwen35/tokenizer.json", std::ios::binary);
  std::stringstream stream;
  stream << file.rdbuf();
  const std::string original = stream.str();
  const size_t model = original.find("\"model\"");
  ASSERT_NE(model, std::string::npos);

  const auto begin = std::chrono::steady_clock::now();
  int read = 0, refused = 0;
  Mutator mutator(7);
  for (int i = 0; i < 4000; ++i) {
    std::string head = original.substr(0, model + 200), tail = original.substr(model + 200);
    for (size_t changes = 1 + mutator.below(3); changes > 0; --changes)
      mutator.change(mutator.below(3) == 0 ? &tail : &head);
    try {
      const Tokenizer tokenizer = Tokenizer::parse(head + tail, "changed");
      for (const int32_t id :
           tokenizer.encode("<|im_start|>user\nSam has 32 caf\u00e9s, aaaaaaaaaaaaaaaaaaaaaaaaaaaab!  \n", true)) {
        ASSERT_GE(id, 0);
        ASSERT_LT(id, tokenizer.vocab_size());
      }
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kModel) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 100);
  EXPECT_GT(refused, 1000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(5));
}

}  // namespace
}  // namespace coprime
