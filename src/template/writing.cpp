// Values as text: Python's str() and repr(), and json.dumps.
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "template/value.h"
#include "tokenizer/utf8.h"

namespace coprime::templates {
namespace {

// The shortest digits that read back as the number, as Python's repr chooses and places them.
std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[64];
  const auto scientific = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific);
  const std::string text(digits, scientific.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed);
  std::string result(digits, fixed.ptr);
  if (result.find('.') == result.npos) result += ".0";
  return result;
}

bool is_printable(uint32_t point) {
  if (point == ' ') return true;
  switch (utf8proc_category(static_cast<int32_t>(point))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void write_quoted(const Text& text, Text* out) {
  const std::string& bytes = text.bytes();
  const bool double_quotes = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
  const char quote = double_quotes ? '"' : '\'';
  out->append_bytes(std::string_view(&quote, 1), text.has_foreign());
  for (size_t at = 0; at < bytes.size();) {
    const size_t begin = at;
    const uint32_t point = next_code_point(bytes, &at);
    std::string escape;
    if (point == static_cast<uint32_t>(quote) || point == '\\') {
      escape = {'\\', static_cast<char>(point)};
    } else if (point == '\n' || point == '\r' || point == '\t') {
      escape = point == '\n' ? "\\n" : point == '\r' ? "\\r" : "\\t";
    } else if (!is_printable(point)) {
      escape = point < 0x100     ? fmt::format("\\x{:02x}", point)
               : point < 0x10000 ? fmt::format("\\u{:04x}", point)
                                 : fmt::format("\\U{:08x}", point);
    }
    if (escape.empty()) {
      out->append(text, begin, at);
    } else {
      out->append_bytes(escape, text.is_foreign(begin));
    }
  }
  out->append_bytes(std::string_view(&quote, 1), text.has_foreign());
}

void write_items(const Value& value, Text* out, Budget* budget) {
  const bool tuple = value.is_tuple();
  out->append_own(tuple ? "(" : "[");
  bool first = true;
  for (const Value& item : value.items()) {
    if (!std::exchange(first, false)) out->append_own(", ");
    write(item, true, out, budget);
  }
  if (tuple && value.items().size() == 1) out->append_own(",");
  out->append_own(tuple ? ")" : "]");
}

void write_dict(const Dict& dict, Text* out, Budget* budget) {
  out->append_own("{");
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!std::exchange(first, false)) out->append_own(", ");
    write_quoted(key, out);
    out->append_own(": ");
    write(value, true, out, budget);
  }
  out->append_own("}");
}

class JsonWriter {
 public:
  JsonWriter(const JsonForm& form, Budget* budget) : form_(form), budget_(budget) {}

  void write(const Value& value, int level) {
    budget_->step();
    const size_t before = out.size();
    if (value.is_text()) {
      string(value.as_text());
    } else if (value.is_sequence()) {
      list(value.items(), level);
    } else if (value.is_dict()) {
      dict(value.as_dict(), level);
    } else {
      scalar(value);
    }
    if (!value.is_sequence() && !value.is_dict()) budget_->bytes(out.size() - before);
  }

  Text out;

 private:
  void scalar(const Value& value) {
    const auto give = [&](std::string_view text) { out.append_bytes(text, value.is_foreign()); };
    if (value.is_none()) return give("null");
    if (value.is_boolean()) return give(value.as_boolean() ? "true" : "false");
    if (value.is_integer()) return give(fmt::to_string(value.as_integer()));
    if (!value.is_real()) fault("tojson: {} has no JSON form", value.type_name());
    const double number = value.as_real();
    if (std::isnan(number)) return give("NaN");
    if (std::isinf(number)) return give(number < 0 ? "-Infinity" : "Infinity");
    give(real_text(number));
  }

  void string(const Text& text) {
    out.append_bytes("\"", text.has_foreign());
    size_t done = 0;
    const std::string& bytes = text.bytes();
    for (size_t at = 0; at < bytes.size(); ++at) {
      const auto byte = static_cast<unsigned char>(bytes[at]);
      if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
      out.append(text, done, at);
      done = at + 1;
      static constexpr std::string_view kNamed = "\b\f\n\r\t\"\\", kLetters = "bfnrt\"\\";
      const size_t named = kNamed.find(bytes[at]);
      out.append_bytes(named != kNamed.npos ? std::string{'\\', kLetters[named]} : fmt::format("\\u{:04x}", byte),
                       text.is_foreign(at));
    }
    out.append(text, done, bytes.size());
    out.append_bytes("\"", text.has_foreign());
  }

  void new_line(int level) {
    if (form_.indent < 0) return;
    budget_->bytes(static_cast<size_t>(level) * static_cast<size_t>(form_.indent) + 1);
    out.append_own("\n" + std::string(static_cast<size_t>(level) * static_cast<size_t>(form_.indent), ' '));
  }

  void list(const Items& items, int level) {
    if (items.empty()) return out.append_own("[]");
    out.append_own("[");
    bool first = true;
    for (const Value& item : items) {
      if (!std::exchange(first, false)) out.append_own(form_.item_separator);
      new_line(level + 1);
      write(item, level + 1);
    }
    new_line(level);
    out.append_own("]");
  }

  void dict(const Dict& dict, int level) {
    if (dict.entries.empty()) return out.append_own("{}");
    std::vector<const std::pair<Text, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (form_.sort_keys)
      std::ranges::sort(entries, {}, [](const auto* entry) -> const std::string& { return entry->first.bytes(); });
    out.append_own("{");
    bool first = true;
    for (const auto* entry : entries) {
      if (!std::exchange(first, false)) out.append_own(form_.item_separator);
      new_line(level + 1);
      string(entry->first);
      out.append_own(form_.key_separator);
      write(entry->second, level + 1);
    }
    new_line(level);
    out.append_own("}");
  }

  const JsonForm& form_;
  Budget* budget_;
};

}  // namespace

void write(const Value& value, bool quoted, Text* out, Budget* budget) {
  budget->step();
  if (value.is_text()) {
    budget->bytes(value.as_text().size());
    if (quoted) return write_quoted(value.as_text(), out);
    return out->append(value.as_text());
  }
  if (value.is_sequence()) return write_items(value, out, budget);
  if (value.is_dict()) return write_dict(value.as_dict(), out, budget);
  const auto give = [&](std::string_view text) { out->append_bytes(text, value.is_foreign()); };
  if (value.is_none()) return give("None");
  if (value.is_boolean()) return give(value.as_boolean() ? "True" : "False");
  if (value.is_integer()) return give(fmt::to_string(value.as_integer()));
  if (value.is_real()) return give(real_text(value.as_real()));
  if (value.is_undefined() && !quoted) return;
  fault("a {} cannot be written", value.type_name());
}

Text to_text(const Value& value, Budget* budget) {
  if (value.is_text()) return value.as_text();
  Text text;
  write(value, false, &text, budget);
  return text;
}

Text to_json(const Value& value, const JsonForm& form, Budget* budget) {
  JsonWriter writer(form, budget);
  writer.write(value, 0);
  return std::move(writer.out);
}

}  // namespace coprime::templates
