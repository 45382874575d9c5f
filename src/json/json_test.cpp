#include "json/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coprime {
namespace {

// The message of the Error(kModel) that reading `text` with `then` gives; empty if none.
template <class Then>
std::string refusal(std::string_view text, const Then& then) {
  try {
    const JsonDocument document(text, "a.json");
    then(document.node());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
  return "";
}
std::string refusal(std::string_view text) {
  return refusal(text, [](const JsonNode&) {});
}

TEST(Json, values_are_read_by_path) {
  const JsonDocument document(R"({"a": {"b": [1, {"c": "x"}], "n": null}, "f": 1.5})", "a.json");
  const JsonNode items = document.node().need("a").need("b");
  EXPECT_EQ(items.path(), "a.json: a.b");
  EXPECT_EQ(items.items()[0].integer(0, 9), 1);
  EXPECT_EQ(items.items()[1].need("c").text(), "x");
  EXPECT_EQ(items.items()[1].need("c").path(), "a.json: a.b[1].c");
  EXPECT_FALSE(document.node().need("a").get("n"));  // null counts as absent
  EXPECT_EQ(document.root().number("f"), 1.5);
  EXPECT_EQ(document.root().object("a")->path("n"), "a.json: a.n");
}

TEST(Json, texts_that_are_no_sound_object_are_refused) {
  EXPECT_EQ(refusal("[1]"), "a.json: the JSON is [1]; expected an object");
  for (const char* text : {"", "{", "{}x", "{\"a\":1,}", "{\"a\xff\":1}", "nul"})
    EXPECT_NE(refusal(text).find("a.json: "), std::string::npos) << text;
  std::string deep = "{}";
  for (int i = 0; i < 40; ++i) deep = "{\"x\":" + deep + "}";
  EXPECT_NE(refusal(deep).find("at most 32 levels"), std::string::npos);
  EXPECT_EQ(JsonDocument(deep, "a.json", 64).node().need("x").path(), "a.json: x");
}

TEST(Json, a_key_that_stands_twice_anywhere_is_refused) {
  for (const char* text : {R"({"a":1,"a":1})", R"({"x":[{"a":1,"a":2}]})", R"({"a":1,"\u0061":2})"})
    EXPECT_NE(refusal(text).find("key \"a\" stands twice in one object"), std::string::npos) << text;
}

TEST(Json, of_a_request_may_be_any_value_and_its_faults_are_the_callers) {
  EXPECT_EQ(JsonDocument::of_request("[1, {\"a\": 2}]", "the request").node().items()[1].path(), "the request[1]");
  EXPECT_EQ(JsonDocument::of_request("{\"a\": 2}", "the request").root().number("a"), 2);
  for (const auto& [text, words] : {std::pair("[", "the request: 1 bytes that are not JSON ("),
                                    {R"([{"a": {"b": 1, "b": 1}}])", "the request: key \"b\" stands twice"}}) {
    try {
      JsonDocument::of_request(text, "the request");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      EXPECT_TRUE(std::string_view(error.what()).starts_with(words)) << error.what();
      EXPECT_EQ(std::string_view(error.what()).find("fetch"), std::string_view::npos) << error.what();
    }
  }
}

TEST(Json, a_value_of_another_type_or_range_is_named_with_what_it_is) {
  constexpr const char* kText = R"({"a": "x", "n": 7, "big": 18446744073709551615})";
  EXPECT_EQ(refusal(kText, [](const JsonNode& n) { n.need("a").integer(0, 9); }),
            "a.json: a is \"x\"; expected an integer in 0..9");
  EXPECT_EQ(refusal(kText, [](const JsonNode& n) { n.need("n").text(); }), "a.json: n is 7; expected a string");
  EXPECT_EQ(refusal(kText, [](const JsonNode& n) { n.need("n").integer(8, 9); }),
            "a.json: n is 7; expected an integer in 8..9");
  EXPECT_NE(refusal(R"({"big": 18446744073709551615})", [](const JsonNode& n) { n.need("big").integer(0, INT64_MAX); }),
            "");
  EXPECT_EQ(refusal(R"({"n": 7})", [](const JsonNode& n) { n.need("m"); }), "a.json: m is missing");
  EXPECT_EQ(refusal(R"({"n": 7})", [](const JsonNode& n) { n.need("n").need("m"); }),
            "a.json: n is 7; expected an object");
}

TEST(Json, messages_are_one_line_and_short_whatever_the_value_is) {
  const std::string text = "{\"a\": \"" + std::string(100000, 'y') + "\\n\"}";
  const std::string message = refusal(text, [](const JsonNode& n) { n.need("a").flag(); });
  EXPECT_LT(message.size(), 200u);
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST(Json, files_that_are_absent_or_too_large_are_named_with_a_remedy) {
  const auto message = [](const std::filesystem::path& path, int64_t most) -> std::string {
    try {
      read_text_file(path, most);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("/nowhere/a.json", 9),
            "/nowhere/a.json: No such file or directory: check the path, or fetch the file");
  EXPECT_NE(message(COPRIME_SOURCE_DIR "/README.md", 9).find("at most 9 are read"), std::string::npos);
  EXPECT_NE(message(COPRIME_SOURCE_DIR, 9).find("not a regular file"), std::string::npos);
}

}  // namespace
}  // namespace coprime
