// Whatever a template or a conversation holds, it is rendered or refused: no crash, no hang. Run under the asan preset
// to mean it.
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <random>

#include "base/error.h"
#include "template/chat_template.h"

namespace coprime {
namespace {

constexpr const char* kTemplate =
    "{%- macro show(value, level=0) -%}{% if value is mapping %}{% for k, v in value | items %}{{ '<' + k + '>' }}"
    "{{ show(v, level + 1) }}{% endfor %}{% else %}{{ value | string | replace('<', '[') }}{% endif %}{%- endmacro "
    "-%}\n"
    "{% set ns = namespace(last=messages | length - 1, found=false) %}\n"
    "{%- for message in messages[::-1] if message.role != 'tool' %}\n"
    "  {%- set index = (messages | length - 1) - loop.index0 %}{# a comment #}\n"
    "  {%- if not ns.found and message.content is string and message['content'].startswith('a') %}\n"
    "    {%- set ns.found = true %}{% set ns.last = index %}{% break %}\n"
    "  {%- elif loop.first or index in [1, 2.5, none] %}{{ loop.previtem | default({'k': 1}) | tojson(indent=2) }}\n"
    "  {%- endif %}{{ '\\n' ~ message.role | trim | upper ~ message.content[1:-1] * 2 }}\n"
    "{%- else %}none{% endfor %}{{ show(tools[0] if tools else {}) }}{{ messages | selectattr('role', 'equalto', "
    "'user') | map(attribute='content') | join(', ') }}";

constexpr const char* kConversation =
    R"({"messages": [{"role": "user", "content": "a <|im_end|> b"}, {"role": "assistant", "content": "é",
       "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": [1, 2.5, null]}"}}]}, {"role": "tool", "content": "x"}],
       "tools": [{"type": "function", "function": {"name": "f", "deep": {"a": {"b": [true]}}}}], "flag": false})";

constexpr const char* kWords[] = {"{%",
                                  "%}",
                                  "{{",
                                  "}}",
                                  "{#",
                                  "#}",
                                  "-",
                                  "endfor",
                                  "endif",
                                  "for x in ",
                                  "range(99999)",
                                  "if ",
                                  " | ",
                                  "is ",
                                  "not ",
                                  "[",
                                  "]",
                                  "(",
                                  ")",
                                  "ns.last",
                                  "messages",
                                  "**",
                                  "//",
                                  "~",
                                  "0",
                                  "-1",
                                  "9223372036854775807",
                                  "show(show)",
                                  "'",
                                  "\"",
                                  "\\",
                                  "loop.",
                                  "\xc3",
                                  "{",
                                  "}",
                                  ":",
                                  ",",
                                  "namespace(a=ns)",
                                  "raise_exception('x')",
                                  "|join",
                                  "*999999999"};

TEST(TemplateMutations, each_changed_template_and_conversation_is_rendered_or_refused) {
  std::mt19937 random(11);
  const auto below = [&](size_t bound) { return random() % bound; };
  const auto change = [&](std::string* text) {
    const size_t at = below(text->size());
    switch (below(5)) {
      case 0:
        (*text)[at] = static_cast<char>(below(256));
        break;
      case 1:
        text->erase(at, 1 + below(12));
        break;
      case 2:
        text->insert(at, text->substr(below(text->size()), below(40)));
        break;
      default:
        text->insert(at, kWords[below(std::size(kWords))]);
    }
    if (text->empty()) *text = "{{";
  };
  const auto begin = std::chrono::steady_clock::now();
  int rendered = 0, refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string source = kTemplate, conversation = kConversation;
    for (size_t changes = below(4); changes > 0; --changes) change(&source);
    if (below(3) == 0) change(&conversation);
    try {
      const ChatTemplate chat = ChatTemplate::parse(source, "changed");
      const RenderedChat result = chat.render(conversation, "conversation", {});
      size_t done = 0;
      for (const TextRange& range : result.foreign) {
        ASSERT_LT(range.begin, range.end);
        ASSERT_TRUE(range.begin > done || done == 0);
        done = range.end;
      }
      ASSERT_LE(done, result.text.size());
      ++rendered;
    } catch (const Error& error) {
      ASSERT_NE(error.kind(), ErrorKind::kInternal) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(rendered, 2000);
  EXPECT_GT(refused, 2000);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(5));
}

}  // namespace
}  // namespace coprime
