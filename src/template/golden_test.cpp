// What jinja2 makes of templates, with transformers' settings (scripts/oracles/chat_goldens.py): of each construct, and
// of the real templates of Qwen and Llama over many conversations.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "template/chat_template.h"

namespace coprime {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& name) {
  std::stringstream stream(read(COPRIME_SOURCE_DIR "/tests/data/templates/" + name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::tm fourth_of_july() {
  std::tm now{};
  now.tm_year = 2026 - 1900, now.tm_mon = 6, now.tm_mday = 4, now.tm_hour = 9, now.tm_min = 5, now.tm_sec = 3;
  return now;
}

// The text, or "error".
std::string rendered(const std::string& source, const std::string& conversation, const ChatOptions& options,
                     std::string* why) {
  try {
    const auto chat =
        ChatTemplate::parse(source, "golden", {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|im_end|>"}});
    return chat.render(conversation, "conversation", options).text;
  } catch (const Error& error) {
    *why = error.what();
    return "error";
  }
}

TEST(TemplateConstructs, each_gives_what_jinja_gives) {
  const std::vector<std::string> lines = lines_of("constructs.jsonl");
  ASSERT_GT(lines.size(), 80u);
  const ChatOptions options{.variables = lines[0], .now = fourth_of_july()};
  simdjson::dom::parser parser;
  for (size_t i = 1; i < lines.size(); ++i) {
    const simdjson::dom::element line = parser.parse(lines[i]);
    const auto source = std::string(std::string_view(line["template"]));
    const std::string expected = line["text"].is_null() ? "error" : std::string(std::string_view(line["text"]));
    std::string why;
    EXPECT_EQ(rendered(source, "[]", options, &why), expected) << source << "\n" << why;
  }
}

std::string fnv(std::string_view text) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return fmt::format("{:016x}", value);
}

TEST(RealTemplates, each_conversation_gives_the_text_that_transformers_gives) {
  std::map<std::string, std::string> sources;
  std::map<std::string, int> wrong;
  size_t cases = 0, texts = 0;
  simdjson::dom::parser parser;
  for (const std::string& text : lines_of("conversations.jsonl")) {
    const simdjson::dom::element line = parser.parse(text);
    const ChatOptions options{.variables = simdjson::minify(line["options"]), .now = fourth_of_july()};
    const std::string messages = simdjson::minify(line["messages"]);
    for (const auto& [key, result] : simdjson::dom::object(line["results"])) {
      const auto name = std::string(key);
      if (!sources.contains(name)) {
        const std::string path = fmt::format("{}/templates/{}.jinja", COPRIME_BINARY_DIR, name);
        ASSERT_TRUE(std::filesystem::exists(path)) << "run scripts/fetch_templates " << COPRIME_BINARY_DIR "/templates";
        sources[name] = read(path);
      }
      std::string why;
      const std::string got = rendered(sources[name], messages, options, &why);
      const std::string brief = got == "error" ? got : fmt::format("{} {}", got.size(), fnv(got));
      ++cases;
      texts += got != "error";
      if (brief == std::string_view(result) || ++wrong[name] > 2) continue;
      ADD_FAILURE() << name << " of " << messages << " with " << options.variables << "\nexpected " << result << "\n"
                    << got << "\n"
                    << why;
    }
  }
  EXPECT_GT(cases, 4000u);
  EXPECT_GT(texts, 3000u);
  for (const auto& [name, count] : wrong) ADD_FAILURE() << name << ": " << count << " wrong";
}

}  // namespace
}  // namespace coprime
