// Vocabularies of GGUF files: the same ids as Hugging Face's, and what is refused.
#include "tokenizer/gguf_vocabulary.h"

#include <gtest/gtest.h>
#include <simdjson.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "gguf/test_files.h"
#include "tokenizer/tokenizer.h"

namespace coprime {
namespace {

using Ids = std::vector<int32_t>;

class GgufVocabulary : public testing::Test {
 protected:
  Tokenizer open(const GgufBuilder& file) {
    file.write(path_);
    return Tokenizer::open(path_);
  }
  void refused(const GgufBuilder& file, std::initializer_list<std::string> parts) {
    std::string message = "accepted";
    try {
      open(file);
    } catch (const Error& error) {
      message = error.kind() == ErrorKind::kModel ? error.what() : "another kind";
    }
    for (const std::string& part : parts) EXPECT_NE(message.find(part), message.npos) << message << " lacks " << part;
  }

  const MemoryFile file_;
  const std::filesystem::path path_ = file_.path();
};

GgufBuilder tiny(const std::string& without = "") {
  GgufBuilder file;
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "qwen2");
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>", "<think>", "1"});
  file.integers("tokenizer.ggml.token_type", {1, 1, 1, 3, 4, 1}).texts("tokenizer.ggml.merges", {"a b"});
  file.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", 3);
  return file.without(without);
}

TEST_F(GgufVocabulary, a_sound_one_encodes_and_names_its_special_tokens) {
  const Tokenizer tokenizer = open(tiny().u32("tokenizer.ggml.eot_token_id", 4));
  EXPECT_EQ(tokenizer.encode("abba<end>11<think>", false), (Ids{2, 1, 0, 3, 5, 5, 4}));
  EXPECT_EQ(tokenizer.encode("a", true), Ids{0});
  EXPECT_TRUE(tokenizer.is_special(3));
  EXPECT_FALSE(tokenizer.is_special(4));  // the model's own words: shown
  EXPECT_EQ(tokenizer.eos_ids(), (Ids{3, 4}));
  EXPECT_EQ(tokenizer.vocab_size(), 6);
}

TEST_F(GgufVocabulary, what_stands_around_a_text_follows_the_flags) {
  EXPECT_EQ(open(tiny().boolean("tokenizer.ggml.add_bos_token", true)).encode("b", true), (Ids{0, 1}));
  EXPECT_EQ(open(tiny().boolean("tokenizer.ggml.add_eos_token", true)).encode("b", true), (Ids{1, 3}));
  EXPECT_EQ(open(tiny("tokenizer.ggml.pre").text("tokenizer.ggml.pre", "llama-bpe")).encode("b", true), (Ids{0, 1}));
  refused(tiny("tokenizer.ggml.bos_token_id").boolean("tokenizer.ggml.add_bos_token", true),
          {"bos_token_id is missing", "add_bos_token is set"});
}

TEST_F(GgufVocabulary, what_does_not_fit_is_refused_by_name) {
  refused(tiny("tokenizer.ggml.model"), {"tokenizer.ggml.model is missing", "gpt2"});
  refused(tiny("tokenizer.ggml.model").text("tokenizer.ggml.model", "llama"), {"model is \"llama\""});
  refused(tiny("tokenizer.ggml.pre"), {"tokenizer.ggml.pre is missing"});
  refused(tiny("tokenizer.ggml.pre").text("tokenizer.ggml.pre", "tekken"), {"pre is \"tekken\"", "smollm, qwen2"});
  refused(tiny("tokenizer.ggml.tokens"), {"tokens has 0 entries"});
  refused(tiny("tokenizer.ggml.tokens").texts("tokenizer.ggml.tokens", {}), {"tokens has 0 entries"});
  refused(tiny("tokenizer.ggml.tokens").integers("tokenizer.ggml.tokens", {1}), {"expected an array of strings"});
  refused(tiny("tokenizer.ggml.tokens").texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<end>", "a", "1"}),
          {"the token \"a\" stands there twice"});
  refused(tiny("tokenizer.ggml.tokens").texts("tokenizer.ggml.tokens", {"a", "b", "ab", "", "<think>", "1"}),
          {"[3] is a named token without text"});
  refused(tiny("tokenizer.ggml.tokens").texts("tokenizer.ggml.tokens", {"a", "b", "ab", "\xff", "<think>", "1"}),
          {"[3] is not UTF-8"});
  refused(tiny("tokenizer.ggml.token_type").integers("tokenizer.ggml.token_type", {1}), {"has 1 entries"});
  refused(tiny("tokenizer.ggml.token_type").integers("tokenizer.ggml.token_type", {1, 1, 1, 3, 7, 1}), {"[4] is 7"});
  refused(tiny("tokenizer.ggml.merges"), {"merges is missing"});
  for (const char* merge : {"ab", "a", " b", "a ", "", "a b c"})
    refused(tiny("tokenizer.ggml.merges").texts("tokenizer.ggml.merges", {merge}), {"merges[0]", "expected \"A B\""});
  refused(tiny("tokenizer.ggml.merges").texts("tokenizer.ggml.merges", {"a b", "b a"}),
          {"merges[1]: \"ba\" is no token"});
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    refused(tiny(key).u32(key, 6), {std::string(key) + " is 6", "in 0..5"});
    refused(tiny(key).scalar(key, GgufType::kI32, -1), {std::string(key) + " is -1"});
  }
}

TEST_F(GgufVocabulary, damaged_ones_never_crash) {
  std::mt19937 random(3);
  int read = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string bytes = tiny().boolean("tokenizer.ggml.add_bos_token", true).bytes();
    for (int edits = 1 + static_cast<int>(random() % 2); edits > 0; --edits) {
      const size_t at = 24 + random() % (bytes.size() - 24);
      bytes[at] = random() % 2 ? static_cast<char>(random()) : static_cast<char>(bytes[at] ^ (1 << random() % 8));
    }
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    try {
      const Tokenizer tokenizer = Tokenizer::open(path_);
      tokenizer.encode("ab<end> 12 \u00e9", true);
      ++read;
    } catch (const Error& error) {
      ASSERT_NE(error.kind(), ErrorKind::kInternal) << error.what();
    }
  }
  EXPECT_GT(read, 150);
}

std::string read_gzip(const std::string& path) {
  std::string text;
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return text;
  std::vector<char> buffer(1 << 20);
  for (int count; (count = gzread(file, buffer.data(), static_cast<unsigned>(buffer.size()))) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  gzclose(file);
  return text;
}

// Of every string of the goldens whose ids are not those of Hugging Face.
size_t differences(const Tokenizer& tokenizer, const char* vocabulary) {
  const std::string lines = read_gzip(COPRIME_SOURCE_DIR "/tests/data/tokenizers/strings.jsonl.gz");
  simdjson::dom::parser parser;
  size_t strings = 0, wrong = 0;
  for (const simdjson::dom::element line : parser.parse_many(lines, 4 << 20)) {
    Ids ids;
    for (const int64_t id : line[vocabulary].get_array()) ids.push_back(static_cast<int32_t>(id));
    wrong += tokenizer.encode(std::string_view(line["text"]), false) != ids;
    ++strings;
  }
  EXPECT_GE(strings, 3000u);
  return wrong;
}

TEST(GgufGoldens, the_real_file_of_smollm2_gives_the_ids_of_hugging_face) {
  const std::string path = COPRIME_BINARY_DIR "/smollm2.gguf";
  ASSERT_TRUE(std::filesystem::exists(path)) << "run scripts/fetch_smollm2 " << path;
  const Tokenizer tokenizer = Tokenizer::open(path);
  EXPECT_EQ(differences(tokenizer, "smollm2"), 0u);
  EXPECT_EQ(tokenizer.eos_ids(), Ids{2});
}

// The vocabulary of a tokenizer.json, as a converter writes it.
GgufBuilder converted(const std::string& folder, const std::string& pre) {
  simdjson::dom::parser parser;
  const simdjson::dom::element root = parser.load(folder + "/tokenizer.json");
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  const auto put = [&](int64_t id, std::string_view text, int32_t type) {
    const auto at = static_cast<size_t>(id);
    if (tokens.size() <= at) tokens.resize(at + 1), types.resize(at + 1, 0);
    tokens[at] = text, types[at] = type;
  };
  for (const auto& [text, id] : root["model"]["vocab"].get_object()) put(id.get_int64(), text, 1);
  for (const simdjson::dom::element token : root["added_tokens"].get_array())
    put(token["id"].get_int64(), std::string_view(token["content"]), token["special"].get_bool() ? 3 : 4);
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (types[i] == 0) tokens[i] = fmt::format("[PAD{}]", i), types[i] = 5;
  }
  for (const simdjson::dom::element merge : root["model"]["merges"].get_array()) {
    if (merge.is_string()) {
      merges.emplace_back(std::string_view(merge));
    } else {
      merges.push_back(fmt::format("{} {}", std::string_view(merge.at(0)), std::string_view(merge.at(1))));
    }
  }
  GgufBuilder file;
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre).texts("tokenizer.ggml.tokens", tokens);
  file.integers("tokenizer.ggml.token_type", types).texts("tokenizer.ggml.merges", merges);
  return file.boolean("tokenizer.ggml.add_bos_token", false);
}

TEST_F(GgufVocabulary, qwen_and_llama_vocabularies_give_the_ids_of_hugging_face) {
  for (const auto& [name, pre] : {std::pair("qwen2", "qwen2"), {"qwen3_5", "qwen35"}, {"llama3", "llama-bpe"}}) {
    const std::string folder = std::string(COPRIME_BINARY_DIR "/tokenizers/") + name;
    ASSERT_TRUE(std::filesystem::exists(folder + "/tokenizer.json"))
        << "run scripts/fetch_tokenizers " << COPRIME_BINARY_DIR << "/tokenizers";
    EXPECT_EQ(differences(open(converted(folder, pre)), name), 0u) << name;
  }
}

}  // namespace
}  // namespace coprime
