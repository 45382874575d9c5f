#include "tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/error.h"

namespace coprime {
namespace {

using Ids = std::vector<int32_t>;

std::string mini_json() {
  std::ifstream file(COPRIME_SOURCE_DIR "/models/mini-qwen35/tokenizer.json", std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

Tokenizer mini() { return Tokenizer::open(COPRIME_SOURCE_DIR "/models/mini-qwen35"); }

std::string joined(const Tokenizer& tokenizer, const Ids& ids) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.bytes(id);
  return text;
}

// A tokenizer of a few tokens: a, b, c, ab, abc, and the added <s>; `change` replaces a part of its text.
Tokenizer tiny(const std::string& part = "", const std::string& by = "") {
  std::string json = R"({"added_tokens": [{"id": 9, "content": "<s>", "special": true}], "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}, "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": ["a b", "ab c"]}})";
  if (!part.empty()) {
    const size_t at = json.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    json.replace(at, part.size(), by);
  }
  return Tokenizer::parse(json, "tiny");
}

// The message of the Error(kModel) that a change of the tiny tokenizer causes.
std::string refusal(const std::string& part, const std::string& by) {
  try {
    tiny(part, by);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << by;
  return {};
}

#define EXPECT_REFUSED(part, by, ...)                                                                   \
  do {                                                                                                  \
    const std::string message = refusal(part, by);                                                      \
    for (const char* word : {__VA_ARGS__}) EXPECT_NE(message.find(word), std::string::npos) << message; \
  } while (false)

TEST(Tokenizer, text_comes_back_from_its_tokens) {
  const Tokenizer tokenizer = mini();
  for (const std::string text :
       {"", "Sam has 32 tickets.\n", "caf\u00e9 \u4f60\u597d \U0001f600", "a\x01z\x7f", "<|im_start|>x<|im_end|>"}) {
    EXPECT_EQ(joined(tokenizer, tokenizer.encode(text, false)), text);
  }
}

TEST(Tokenizer, added_tokens_in_the_text_are_recognised) {
  const Tokenizer tokenizer = mini();
  EXPECT_EQ(tokenizer.encode("<|im_start|><|im_end|>", false), (Ids{572, 573}));
  EXPECT_TRUE(tokenizer.is_special(572));
  EXPECT_FALSE(tokenizer.is_special(0));
  EXPECT_FALSE(tokenizer.is_special(-1));
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
}

TEST(Tokenizer, an_unknown_id_has_no_bytes) {
  const Tokenizer tokenizer = tiny();
  for (const int32_t id : {-1, 5, 8, 10, INT32_MAX, INT32_MIN}) EXPECT_EQ(tokenizer.bytes(id), "") << id;
  EXPECT_EQ(tokenizer.bytes(9), "<s>");  // behind a gap
  EXPECT_EQ(tokenizer.vocab_size(), 10);
}

TEST(Tokenizer, find_knows_tokens_by_their_text) {
  const Tokenizer tokenizer = mini();
  EXPECT_EQ(tokenizer.find("<|im_end|>"), 573);
  EXPECT_EQ(tokenizer.bytes(tokenizer.find(" =")), " =");
  EXPECT_EQ(tokenizer.find("\u0120="), -1);  // the byte alphabet is not text
  EXPECT_EQ(tokenizer.find(""), -1);
}

TEST(Tokenizer, the_end_token_is_the_one_of_the_config) { EXPECT_EQ(mini().eos_ids(), Ids{573}); }

TEST(Tokenizer, the_end_token_may_be_an_object_or_missing) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("coprime_tokenizer_{}", ::getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << mini_json();
  EXPECT_EQ(Tokenizer::open(folder).eos_ids(), Ids{});
  const auto eos_of = [&](const std::string& config) {
    std::ofstream(folder / "tokenizer_config.json") << config;
    return Tokenizer::open(folder).eos_ids();
  };
  EXPECT_EQ(eos_of(R"({"eos_token": {"content": "<|endoftext|>", "lstrip": false}})"), Ids{571});
  EXPECT_EQ(eos_of(R"({"eos_token": null})"), Ids{});
  EXPECT_EQ(eos_of(R"({"eos_token": "<|no such|>"})"), Ids{});
  EXPECT_THROW(eos_of(R"({"eos_token": 7})"), Error);
  std::filesystem::remove_all(folder);
}

TEST(Tokenizer, a_missing_file_is_named) {
  try {
    Tokenizer::open("/nowhere");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    EXPECT_NE(std::string(error.what()).find("/nowhere/tokenizer.json"), std::string::npos);
  }
}

TEST(Tokenizer, text_that_is_not_utf8_is_refused_at_its_byte) {
  const Tokenizer tokenizer = mini();
  const auto position = [&](const std::string& text) -> std::string {
    try {
      tokenizer.encode(text, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(position("0123456789\xff").find("byte 10 is 0xff"), std::string::npos);
  EXPECT_NE(position("ab\xe4\xbd").find("byte 2 "), std::string::npos);              // cut
  EXPECT_NE(position("\xed\xa0\x80").find("byte 0 "), std::string::npos);            // a surrogate
  EXPECT_NE(position("\xc0\x80").find("byte 0 "), std::string::npos);                // overlong
  EXPECT_NE(position("\u00e9\xf4\x90\x80\x80").find("byte 2 "), std::string::npos);  // above U+10FFFF
}

TEST(Tokenizer, bytes_without_a_token_vanish_and_their_neighbours_may_merge) {
  EXPECT_EQ(tiny().encode("a!b", false), (Ids{3}));
  EXPECT_EQ(tiny().encode("!!", false), Ids{});
}

TEST(Tokenizer, merges_go_by_rank_and_not_from_the_left) {
  EXPECT_EQ(
      tiny(R"("abc": 4}, "merges": ["a b", "ab c"])", R"("bc": 4}, "merges": ["b c", "a b"])").encode("abc", false),
      (Ids{0, 4}));
}

TEST(Tokenizer, ignoring_merges_takes_a_whole_piece_that_is_a_token) {
  const std::string model = R"("merges": ["a b", "ab c"])";
  EXPECT_EQ(tiny(model, R"("merges": [])").encode("abc", false), (Ids{0, 1, 2}));
  EXPECT_EQ(tiny(model, R"("merges": [], "ignore_merges": true)").encode("abc", false), (Ids{4}));
}

TEST(Tokenizer, digits_are_cut_one_by_one_only_if_the_file_says_so) {
  const auto ids = [](bool individual) {
    const std::string json = fmt::format(R"({{"pre_tokenizer": {{"type": "Sequence", "pretokenizers": [
      {{"type": "Digits", "individual_digits": {}}}, {{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}}]}},
      "decoder": {{"type": "ByteLevel"}}, "model": {{"vocab": {{"a": 0, "1": 1, "2": 2, "12": 3, "a12": 4}},
      "merges": ["1 2", "a 12"]}}}})",
                                         individual);
    return Tokenizer::parse(json, "digits").encode("a12", false);
  };
  EXPECT_EQ(ids(false), (Ids{0, 3}));
  EXPECT_EQ(ids(true), (Ids{0, 1, 2}));
}

TEST(Tokenizer, a_long_piece_is_not_quadratic) {
  const Tokenizer tokenizer = tiny();
  const auto begin = std::chrono::steady_clock::now();
  std::string text;
  for (int i = 0; i < 1'000'000; ++i) text += "abc"[i % 3];
  EXPECT_EQ(tokenizer.encode(text, false).size(), 333'334u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(Tokenizer, many_threads_may_encode_at_once) {
  const Tokenizer tokenizer = mini();
  std::string text;
  for (int i = 0; i < 500; ++i) text += fmt::format("Sam has {} tickets and {} caf\u00e9s. ", i, i * 7);
  const Ids expected = tokenizer.encode(text, false);
  std::vector<std::thread> threads;
  std::vector<Ids> got(4);
  for (Ids& ids : got) threads.emplace_back([&] { ids = tokenizer.encode(text, false); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : got) EXPECT_EQ(ids, expected);
}

TEST(TokenizerFile, parts_that_are_not_supported_are_refused_by_name) {
  const std::string normalizer = R"("normalizer": null)", decoder = R"("decoder": {"type": "ByteLevel"})",
                    post = R"("post_processor": null)";
  const std::string pre = R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})";
  EXPECT_REFUSED(normalizer, R"("normalizer": {"type": "Lowercase"})", "tiny: normalizer.type", "Lowercase", "NFC");
  EXPECT_REFUSED(normalizer,
                 R"("normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKC"}]})",
                 "normalizers[1].type", "NFKC");
  EXPECT_REFUSED(pre, R"({"type": "Metaspace"})", "tiny: pre_tokenizer.type", "Metaspace", "ByteLevel");
  EXPECT_REFUSED(pre, R"({"type": "Digits"})", "pre_tokenizer", "ByteLevel");
  EXPECT_REFUSED(pre, R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]})",
                 "ByteLevel");
  EXPECT_REFUSED(pre, R"({"type": "Split", "behavior": "Removed", "pattern": {"Regex": "a"}})", "behavior", "Removed",
                 "Isolated");
  EXPECT_REFUSED(pre, R"({"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "a"}, "invert": true})",
                 "invert");
  EXPECT_REFUSED(pre, R"({"type": "Split", "behavior": "Isolated", "pattern": {"String": "a"}})", "Regex");
  EXPECT_REFUSED(decoder, R"("decoder": {"type": "WordPiece"})", "tiny: decoder.type", "WordPiece");
  EXPECT_REFUSED(decoder, R"("decoder": null)", "decoder");
  EXPECT_REFUSED(post, R"("post_processor": {"type": "BertProcessing"})", "post_processor.type", "BertProcessing");
  EXPECT_REFUSED(R"("type": "BPE")", R"("type": "Unigram")", "tiny: model.type", "Unigram", "BPE");
  EXPECT_REFUSED(R"("type": "BPE")", R"("byte_fallback": true)", "byte_fallback");
  EXPECT_REFUSED(R"("type": "BPE")", R"("dropout": 0.1)", "dropout");
  EXPECT_REFUSED(R"("type": "BPE")", R"("unk_token": "a")", "unk_token");
  EXPECT_REFUSED(R"("type": "BPE")", R"("end_of_word_suffix": "</w>")", "end_of_word_suffix");
}

TEST(TokenizerFile, template_processing_must_name_tokens_and_have_one_text) {
  const auto with = [](const std::string& single) {
    return R"("post_processor": {"type": "TemplateProcessing", "single": [)" + single +
           R"(], "special_tokens": {"<s>": {"id": "<s>", "ids": [9]}, "<t>": {"id": "<t>", "ids": [77]}}})";
  };
  const std::string post = R"("post_processor": null)", text = R"({"Sequence": {"id": "A"}})";
  const Tokenizer tokenizer = tiny(post, with(R"({"SpecialToken": {"id": "<s>"}}, )" + text));
  EXPECT_EQ(tokenizer.encode("ab", true), (Ids{9, 3}));
  EXPECT_EQ(tokenizer.encode("ab", false), (Ids{3}));
  EXPECT_REFUSED(post, with(""), "Sequence");
  EXPECT_REFUSED(post, with(text + "," + text), "Sequence");
  EXPECT_REFUSED(post, with(text + R"(, {"SpecialToken": {"id": "<u>"}})"), "<u>");
  EXPECT_REFUSED(post, with(text + R"(, {"SpecialToken": {"id": "<t>"}})"), "77");
}

TEST(TokenizerFile, ids_are_whole_unique_and_in_range) {
  const std::string vocab = R"("c": 2)";
  for (const char* id : {"-1", "16777216", "2147483648", "18446744073709551615", "1.5", "\"2\"", "null", "[2]"}) {
    EXPECT_REFUSED(vocab, std::string("\"c\": ") + id, "tiny: model.vocab", "token id");
  }
  EXPECT_REFUSED(R"("vocab": {)", R"("vocab": {}, "was": {)", "tiny: model.vocab", "no token");
  EXPECT_REFUSED(vocab, R"("c": 1)", "id 1 ", "\"b\"", "\"c\"");
  EXPECT_REFUSED(vocab, R"("c": 2, "c": 5)", "\"c\"", "twice");
  EXPECT_REFUSED(R"("id": 9)", R"("id": 2)", "id 2 ");
  EXPECT_REFUSED(R"("id": 9, "content": "<s>")", R"("id": 9, "content": "ab")", "is 9", "3");
  EXPECT_REFUSED(R"("content": "<s>")", R"("content": "")", "content");
  EXPECT_EQ(tiny(vocab, R"("c": 2, "x": 16777215)").vocab_size(), 1 << 24);
}

TEST(TokenizerFile, merges_must_be_pairs_of_tokens) {
  const std::string merge = R"("ab c")";
  EXPECT_EQ(tiny(merge, R"(["ab", "c"])").encode("abc", false), (Ids{4}));
  EXPECT_REFUSED(merge, R"("ab q")", "merges[1]", "\"q\"");
  EXPECT_REFUSED(merge, R"("b c")", "merges[1]", "\"bc\"");
  for (const char* bad :
       {"\"abc\"", "\"a b c\"", "\"ab \"", "\" c\"", "[\"ab\"]", "[\"a\",\"b\",\"c\"]", "[1,2]", "7", "null"}) {
    EXPECT_REFUSED(merge, bad, "merges[1]");
  }
}

TEST(TokenizerFile, broken_documents_are_refused) {
  const std::string json = mini_json();
  ASSERT_GT(json.size(), 1000u);
  for (const std::string& text : {std::string(), std::string("null"), std::string("[]"), std::string("{}"),
                                  std::string("{\"model\": 3}"), json.substr(0, 1000), json.substr(0, json.size() - 2),
                                  std::string(100000, '['), json + "}", std::string("\xff\xfe")}) {
    EXPECT_THROW(Tokenizer::parse(text, "broken"), Error) << text.substr(0, 50);
  }
  std::string nested;
  for (int i = 0; i < 400; ++i) nested += R"({"type": "Sequence", "normalizers": [)";
  std::string closing;
  for (int i = 0; i < 400; ++i) closing += "]}";
  EXPECT_EQ(tiny(R"("normalizer": null)", "\"normalizer\": " + nested + closing).encode("ab", false), (Ids{3}));
  EXPECT_REFUSED(R"("model": {)", R"("model": {}, "model": {)", "\"model\"", "twice");
}

TEST(ForeignText, special_tokens_in_it_are_text_and_what_joins_beside_it_still_joins) {
  const Tokenizer tokenizer = tiny();
  const auto ids = [&](const std::string& text, std::vector<TextRange> foreign) {
    return tokenizer.encode(text, foreign, "");
  };
  EXPECT_EQ(ids("a<s>b", {}), (Ids{0, 9, 1}));
  EXPECT_EQ(ids("a<s>b", {{0, 1}, {4, 5}}), (Ids{0, 9, 1}));
  for (const TextRange& range : {TextRange{1, 4}, TextRange{0, 5}, TextRange{1, 2}, TextRange{3, 4}, TextRange{2, 3}})
    EXPECT_EQ(ids("a<s>b", {range}), (Ids{3})) << range.begin << " " << range.end;  // bytes without a token vanish
  EXPECT_EQ(ids("<s><s><s>", {{3, 6}}), (Ids{9, 9}));
  EXPECT_EQ(ids("abc", {{1, 2}}), (Ids{4}));
}

TEST(ForeignText, a_shorter_token_that_ends_before_it_counts) {
  const Tokenizer tokenizer =
      tiny(R"({"id": 9, "content": "<s>", "special": true})",
           R"({"id": 9, "content": "<s>", "special": true}, {"id": 10, "content": "<s>ab", "special": true})");
  EXPECT_EQ(tokenizer.encode("<s>ab", {}, ""), (Ids{10}));
  const std::vector<TextRange> foreign = {{3, 5}};
  EXPECT_EQ(tokenizer.encode("<s>ab", foreign, ""), (Ids{9, 3}));
}

TEST(ForeignText, an_added_token_is_structural_where_the_template_spells_it_out) {
  const Tokenizer tokenizer = tiny(R"("special": true)", R"("special": false)");
  const std::vector<TextRange> foreign = {{0, 5}};
  EXPECT_EQ(tokenizer.encode("a<s>b", foreign, "nothing"), (Ids{0, 9, 1}));
  EXPECT_EQ(tokenizer.encode("a<s>b", foreign, "{{ '<s>' }}"), (Ids{3}));
}

TEST(ForeignText, is_found_again_after_normalisation) {
  const std::string text =
      R"({"added_tokens": [{"id": 9, "content": "<s>", "special": true, "normalized": true}], "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}, "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "abc": 4}, "merges": ["a b", "ab c"]}})";
  const Tokenizer tokenizer = Tokenizer::parse(text, "tiny");
  // Each e with its accent becomes one letter of fewer bytes, so that everything behind it moves.
  const std::string e = "e\u0301";
  const std::string whole = e + e + "<s>" + e + "<s>" + e + "<s>b";
  const size_t middle = 2 * e.size() + 3 + e.size();
  const std::vector<TextRange> foreign = {{0, e.size()}, {middle, middle + 3}};
  EXPECT_EQ(tokenizer.encode(whole, {}, ""), (Ids{9, 9, 9, 1}));
  EXPECT_EQ(tokenizer.encode(whole, foreign, ""), (Ids{9, 9, 1}));
  const std::vector<TextRange> mark = {{1, 3}};  // the accent alone is foreign: it joins the letter before it
  EXPECT_EQ(tokenizer.encode("e\u0301<s>", mark, ""), (Ids{9}));
}

}  // namespace
}  // namespace coprime
