// 10,000 strings' ids by Hugging Face's `tokenizers`, of which tests/data holds a part: the nasty ones and every third.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>
#include <zlib.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tokenizer/nfc.h"
#include "tokenizer/tokenizer.h"

namespace coprime {
namespace {

std::string read_gzip(const std::string& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return text;
  std::vector<char> buffer(1 << 20);
  for (int count; (count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  gzclose(file);
  return text;
}

struct Golden {
  std::string text;
  std::vector<int32_t> ids;
};

std::vector<Golden> goldens(const std::string& vocabulary) {
  const std::string lines = read_gzip(COPRIME_SOURCE_DIR "/tests/data/tokenizers/strings.jsonl.gz");
  std::vector<Golden> result;
  simdjson::dom::parser parser;
  for (const simdjson::dom::element line : parser.parse_many(lines, 4 << 20)) {
    Golden& golden = result.emplace_back();
    golden.text = std::string_view(line["text"]);
    for (const int64_t id : line[vocabulary].get_array()) golden.ids.push_back(static_cast<int32_t>(id));
  }
  return result;
}

class TokenizerGoldens : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string folder = std::string(COPRIME_BINARY_DIR "/tokenizers/") + GetParam();
    ASSERT_TRUE(std::filesystem::exists(folder + "/tokenizer.json"))
        << "the vocabularies are not there: run scripts/fetch_tokenizers " << COPRIME_BINARY_DIR << "/tokenizers";
    tokenizer_.emplace(Tokenizer::open(folder));
    goldens_ = goldens(GetParam());
    ASSERT_GE(goldens_.size(), 3000u);
  }

  std::optional<Tokenizer> tokenizer_;
  std::vector<Golden> goldens_;
};

TEST_P(TokenizerGoldens, every_string_has_the_ids_of_hugging_face) {
  size_t matched = 0;
  for (const Golden& golden : goldens_) {
    const std::vector<int32_t> ids = tokenizer_->encode(golden.text, false);
    matched += ids == golden.ids;
    if (ids != golden.ids && golden.text.size() < 300) ADD_FAILURE() << testing::PrintToString(golden.text);
  }
  EXPECT_EQ(matched, goldens_.size());
  RecordProperty("strings", static_cast<int>(goldens_.size()));
}

// All strings in one text take the path with the cache; each alone does not.
TEST_P(TokenizerGoldens, a_long_text_has_the_ids_of_its_parts) {
  const int32_t end =
      tokenizer_->find("<|endoftext|>") >= 0 ? tokenizer_->find("<|endoftext|>") : tokenizer_->find("<|eot_id|>");
  ASSERT_GE(end, 0);
  std::string text;
  std::vector<int32_t> ids;
  for (const Golden& golden : goldens_) {
    text += golden.text;
    text += tokenizer_->bytes(end);
    ids.insert(ids.end(), golden.ids.begin(), golden.ids.end());
    ids.push_back(end);
  }
  EXPECT_EQ(tokenizer_->encode(text, false), ids);
}

TEST_P(TokenizerGoldens, the_tokens_bytes_joined_are_the_text) {
  const bool nfc = std::string_view(GetParam()).starts_with("qwen");
  const bool lossy = std::string_view(GetParam()) == "smollm2";  // its vocabulary lacks 21 bytes
  size_t lost = 0;
  for (const Golden& golden : goldens_) {
    std::string joined, buffer;
    for (const int32_t id : tokenizer_->encode(golden.text, false)) joined += tokenizer_->bytes(id);
    lost += joined != (nfc ? to_nfc(golden.text, &buffer) : std::string_view(golden.text));
  }
  if (lossy) {
    EXPECT_LT(lost, goldens_.size() / 4);
  } else {
    EXPECT_EQ(lost, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerGoldens, testing::Values("qwen2", "qwen3_5", "llama3", "smollm2"),
                         [](const auto& param) { return std::string(param.param); });

// tests/data/tokenizers/make_pipelines.py: small tokenizers whose other parts vary.
TEST(TokenizerPipelines, every_part_does_what_hugging_face_does) {
  const std::string lines = read_gzip(COPRIME_SOURCE_DIR "/tests/data/tokenizers/pipelines.jsonl.gz");
  simdjson::dom::parser parser;
  int variant = 0;
  for (const simdjson::dom::element line : parser.parse_many(lines, 4 << 20)) {
    const Tokenizer tokenizer =
        Tokenizer::parse(std::string_view(line["tokenizer"]), fmt::format("variant {}", variant));
    int wrong = 0;
    for (const simdjson::dom::element sample : line["cases"].get_array()) {
      const std::string_view text(sample.at(0));
      for (const bool special : {false, true}) {
        std::vector<int32_t> expected;
        for (const int64_t id : sample.at(special ? 2 : 1).get_array()) expected.push_back(static_cast<int32_t>(id));
        if (tokenizer.encode(text, special) == expected || ++wrong > 3) continue;
        ADD_FAILURE() << "variant " << variant << ": " << fmt::format("{:?}", text) << "\n"
                      << testing::PrintToString(tokenizer.encode(text, special)) << "\n"
                      << testing::PrintToString(expected);
      }
    }
    EXPECT_EQ(wrong, 0) << "variant " << variant;
    ++variant;
  }
  EXPECT_EQ(variant, 23);
}

}  // namespace
}  // namespace coprime
