// UTF-8, NFC, the byte alphabet and patterns.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <chrono>

#include "base/error.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/nfc.h"
#include "tokenizer/regex.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace coprime {
namespace {

TEST(Utf8, every_code_point_survives_writing_and_reading) {
  for (uint32_t point = 0; point < 0x110000; ++point) {
    if (point >= 0xd800 && point < 0xe000) continue;
    std::string text;
    append_utf8(point, &text);
    size_t at = 0, begin = 9;
    ASSERT_EQ(next_code_point(text, &at), point);
    ASSERT_EQ(at, text.size());
    ASSERT_EQ(previous_code_point(text, at, &begin), point);
    ASSERT_EQ(begin, 0u);
    ASSERT_EQ(find_invalid_utf8(text), std::string_view::npos);
  }
}

// utf8proc's decoder is the oracle.
TEST(Utf8, all_strings_of_three_bytes_are_judged_as_utf8proc_does) {
  for (uint32_t bits = 0; bits < 1 << 24; bits += 7) {
    const std::string text = {static_cast<char>(bits >> 16), static_cast<char>(bits >> 8), static_cast<char>(bits)};
    bool valid = true;
    for (size_t at = 0; valid && at < 3;) {
      int32_t point = 0;
      const utf8proc_ssize_t used = utf8proc_iterate(reinterpret_cast<const uint8_t*>(text.data()) + at,
                                                     static_cast<utf8proc_ssize_t>(3 - at), &point);
      valid = used > 0;
      at += valid ? static_cast<size_t>(used) : 0;
    }
    ASSERT_EQ(find_invalid_utf8(text) == std::string_view::npos, valid) << bits;
  }
}

TEST(Utf8Stream, gives_out_only_whole_code_points) {
  const std::string text = "a\u00e9\u4f60\U0001f600b";
  Utf8Stream stream;
  std::string out;
  for (const char c : text) {
    const std::string part = stream.push(std::string_view(&c, 1));
    EXPECT_EQ(find_invalid_utf8(part), std::string_view::npos);
    out += part;
  }
  EXPECT_EQ(out, text);
  EXPECT_EQ(stream.finish(), "");
}

// The replacements are those of Unicode's practice (one for each longest beginning), as Python and Rust do.
TEST(Utf8Stream, replaces_what_cannot_become_whole_however_it_is_cut) {
  const std::string bytes = "a\xff\xe4\xbdz\xf0\x9f\x98\xc3\xa9\xed\xa0\x80\xc0\xaf\xf4\x90";
  const std::string expected = "a\ufffd\ufffdz\ufffd\u00e9\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd\ufffd";
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    Utf8Stream stream;
    std::string out = stream.push(bytes.substr(0, cut));
    out += stream.push(bytes.substr(cut));
    out += stream.finish();
    EXPECT_EQ(out, expected) << cut;
  }
}

TEST(Utf8Stream, what_waits_at_the_end_is_replaced_once) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("x\xf0\x9f\x98"), "x");
  EXPECT_EQ(stream.finish(), "\ufffd");
  EXPECT_EQ(stream.finish(), "");
}

TEST(ByteAlphabet, each_byte_has_one_letter) {
  std::vector<int> count(256);
  for (uint32_t point = 0; point < 0x3000; ++point) {
    const int byte = byte_of_letter(point);
    if (byte >= 0) ++count[static_cast<size_t>(byte)];
  }
  EXPECT_EQ(count, std::vector<int>(256, 1));
  EXPECT_EQ(bytes_of_token("\u0120the\u010a"), " the\n");
  EXPECT_EQ(bytes_of_token("\u0143"), "\xad");
  EXPECT_EQ(bytes_of_token("a b"), std::nullopt);
}

// utf8proc's whole normaliser is the oracle: ours orders marks itself and skips what it knows to be normal.
TEST(Nfc, each_code_point_between_marks_is_normalised_as_utf8proc_does) {
  for (uint32_t point = 1; point < 0x30000; ++point) {
    if (point >= 0xd800 && point < 0xe000) continue;
    std::string text = "a";
    append_utf8(0x301, &text);
    append_utf8(point, &text);
    append_utf8(0x323, &text);
    append_utf8(0x301, &text);
    std::string buffer;
    uint8_t* expected = utf8proc_NFC(reinterpret_cast<const uint8_t*>(text.c_str()));
    EXPECT_EQ(to_nfc(text, &buffer), reinterpret_cast<const char*>(expected)) << point;
    std::free(expected);
  }
}

TEST(Nfc, each_code_point_below_the_first_mark_is_its_own_form) {
  for (uint32_t point = 1; point < 0x300; ++point) {
    std::string text;
    append_utf8(point, &text);
    uint8_t* expected = utf8proc_NFC(reinterpret_cast<const uint8_t*>(text.c_str()));
    EXPECT_EQ(text, reinterpret_cast<const char*>(expected)) << point;
    std::free(expected);
  }
}

TEST(Nfc, a_long_run_of_marks_is_not_quadratic) {
  std::string text = "a", buffer;
  for (int i = 0; i < 500'000; ++i) text += i % 2 == 0 ? "\u0301" : "\u0323";
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(to_nfc(text, &buffer).substr(0, 3), "\u1ea1");  // a with dot below: the lower class comes first
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

std::vector<std::string> matches(const char* pattern, std::string_view text) {
  const Regex regex(pattern, "test");
  MatchRoom room;
  std::vector<std::string> result;
  size_t begin = 0, end = 0;
  for (size_t from = 0; regex.find(text, from, &room, &begin, &end) && end > begin; from = end) {
    result.emplace_back(text.substr(begin, end - begin));
  }
  return result;
}

TEST(Regex, white_space_is_unicodes_property) {
  std::string text;
  size_t expected = 0;
  for (uint32_t point = 0; point < 0x4000; ++point) {
    append_utf8(point, &text);
    text += 'x';
    expected += is_white_space(point);
  }
  EXPECT_EQ(matches("\\s", text).size(), expected);
  EXPECT_EQ(matches("[\\s]", text).size(), 25u);
  EXPECT_EQ(matches("[^\\S]", text).size(), 25u);
  EXPECT_TRUE(matches("\\s", "\u180e").empty());  // PCRE2's own \s has it
}

TEST(Regex, scripts_are_scripts_and_not_their_extensions) {
  EXPECT_EQ(matches("\\p{Han}", "\u4f60\u3001\u3006"), std::vector<std::string>{"\u4f60"});
}

TEST(Regex, constructs_that_oniguruma_reads_differently_are_refused) {
  for (const char* pattern :
       {"\\w",        "\\b",      "\\h",     "\\v",     "\\R",   "\\X",    "\\K",     "\\1",    "\\Qa",
        "\\",         "\\pL",     "\\p{",    "\\p{L&}", "[[a]]", "[a&&b]", "[]a]",    "(?m:.)", "(?i)a",
        "(?<name>a)", "(?P<n>a)", "(*UTF)a", "(?#x)",   "a{,3}", "a{2}+",  "a{2,3}?", "(?",     "(?R)"}) {
    EXPECT_THROW(Regex(pattern, "test"), Error) << pattern;
  }
}

TEST(Regex, a_pattern_that_is_none_is_refused_with_its_place) {
  for (const char* pattern :
       {"(a", "a)", "[a", "*a", "a{3,2}", "\\p{Nonsense}", "[z-a]", "(?<=a+)b", "a{70000}", "\\x{110000}"}) {
    try {
      Regex(pattern, "test.pre_tokenizer");
      ADD_FAILURE() << pattern;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_NE(std::string(error.what()).find("test.pre_tokenizer: "), std::string::npos) << error.what();
    }
  }
}

// Found by a fuzzer: a message is one line, and shows bytes that no terminal should get.
TEST(Regex, a_patterns_control_characters_do_not_reach_the_message) {
  for (const std::string& pattern : {std::string("ab|\\p{\x01\n}|c"), "(a" + std::string(100'000, '\x1b')}) {
    try {
      Regex(pattern, "test");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_LT(text.size(), 300u);
      EXPECT_TRUE(std::ranges::none_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20; })) << text;
    }
  }
}

TEST(Regex, a_pattern_that_backtracks_without_end_is_an_error_and_no_hang) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(matches("(a+)+$", fmt::format("{:a<5000}b", "")), Error);
  EXPECT_THROW(matches("(?:(?:a|aa)+)+[!?]", std::string(5000, 'a')), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Regex, deep_nesting_is_refused) {
  EXPECT_THROW(Regex(std::string(5000, '(') + std::string(5000, ')'), "test"), Error);
}

TEST(Regex, the_tokenizers_patterns_pass_a_megabyte_of_spaces) {
  const char* pattern = "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
  std::string spaces(1 << 20, ' ');
  spaces.push_back('x');
  EXPECT_EQ(matches(pattern, spaces).size(), 2u);
  EXPECT_EQ(matches(pattern, std::string(1 << 20, 'a')).size(), 1u);
}

}  // namespace
}  // namespace coprime
