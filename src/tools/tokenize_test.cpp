#include "tools/tokenize.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"

namespace coprime {
namespace {

Tokenizer mini() { return Tokenizer::open(COPRIME_SOURCE_DIR "/models/mini-qwen35"); }

TEST(TokenizeLines, text_becomes_ids_and_ids_text) {
  const Tokenizer tokenizer = mini();
  const std::string ids = tokenize_line(tokenizer, R"({"text": "a b<|im_end|>\u00e9", "more": 1})", false);
  EXPECT_EQ(ids, R"({"ids":[64,269,573,127,102]})");
  EXPECT_EQ(tokenize_line(tokenizer, ids, true), "{\"text\":\"a b<|im_end|>é\"}");
  EXPECT_EQ(tokenize_line(tokenizer, R"({"ids": [127]})", true), "{\"text\":\"\xef\xbf\xbd\"}");
  EXPECT_EQ(tokenize_line(tokenizer, R"({"text": ""})", false), R"({"ids":[]})");
}

TEST(TokenizeLines, that_are_none_are_refused) {
  const Tokenizer tokenizer = mini();
  for (const char* line : {"", "{", "3", "{}", R"({"text": 3})", R"({"text": "\ud800"})", "{\"text\": \"\xff\"}",
                           R"({"text": "a", "text": "b"})"})
    EXPECT_THROW(tokenize_line(tokenizer, line, false), Error) << line;
  for (const char* line :
       {R"({"ids": 3})", R"({"ids": [-1]})", R"({"ids": [1.5]})", R"({"ids": [99999]})", R"({"ids": ["1"]})"})
    EXPECT_THROW(tokenize_line(tokenizer, line, true), Error) << line;
}

TEST(TokenizeLines, each_changed_line_is_read_or_refused) {
  const Tokenizer tokenizer = mini();
  std::mt19937 random(5);
  int read = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool decode = i % 2 == 1;
    std::string line =
        decode ? R"({"ids": [64, 269, 573, 127]})" : R"({"text": "How far<|im_end|> \u00e9 \ud83d\ude00?"})";
    for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
      const size_t at = random() % line.size();
      if (random() % 2 == 0) {
        line[at] = static_cast<char>(random() % 256);
      } else {
        line.erase(at, 1 + random() % 3);
      }
      if (line.empty()) line = "{";
    }
    try {
      (void)tokenize_line(tokenizer, line, decode);
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kModel) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
}

TEST(TokenTable, shows_each_token) {
  const Tokenizer tokenizer = mini();
  const std::vector<int32_t> ids = tokenizer.encode("How<|im_end|>", true);
  EXPECT_EQ(token_table(tokenizer, ids), "      39  \"H\"\n     275  \"ow\"\n     573  \"<|im_end|>\"  special\n");
  EXPECT_EQ(text_of_ids(tokenizer, ids), "How<|im_end|>");
  EXPECT_EQ(parse_ids(" [39, 275\n573] "), ids);
  EXPECT_TRUE(parse_ids("").empty());
  EXPECT_THROW(parse_ids("1 x"), Error);
  EXPECT_THROW(text_of_ids(tokenizer, std::vector<int32_t>{-1}), Error);
}

}  // namespace
}  // namespace coprime
