// Methods of Python's str and dict.
#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "template/builtins.h"
#include "tokenizer/utf8.h"

namespace coprime::templates {
namespace {

// What Python's str.strip() takes away.
bool is_stripped(uint32_t point) { return is_white_space(point) || (point >= 0x1c && point <= 0x1f); }

size_t find(const Text& text, const Text& part, size_t from) {
  const void* found = ::memmem(text.bytes().data() + from, text.size() - from, part.bytes().data(), part.size());
  return found == nullptr ? std::string::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.bytes().data());
}

// Whether one of str.startswith's or endswith's alternatives fits.
bool has_end(const Text& text, const Value& ends, bool at_start, std::string_view method) {
  if (ends.is_tuple()) {
    return std::ranges::any_of(ends.items(), [&](const Value& end) { return has_end(text, end, at_start, method); });
  }
  const std::string& end = need_text(ends, method).bytes();
  return at_start ? text.view().starts_with(end) : text.view().ends_with(end);
}

Value split_at_space(const Text& text, int64_t most, Budget* budget) {
  Items parts;
  for (size_t at = 0; at < text.size();) {
    size_t begin = at;
    while (begin < text.size()) {  // skip the space
      size_t next = begin;
      if (!is_stripped(next_code_point(text.view(), &next))) break;
      begin = next;
    }
    if (begin == text.size()) break;
    size_t end = begin;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(Value::text(text.slice(begin, text.size())));
      break;
    }
    while (end < text.size()) {
      size_t next = end;
      if (is_stripped(next_code_point(text.view(), &next))) break;
      end = next;
    }
    parts.push_back(Value::text(text.slice(begin, end)));
    budget->step();
    at = end;
  }
  return Value::list(std::move(parts));
}

Value split(const Text& text, const Arguments& arguments, bool from_right, Budget* budget) {
  const auto bound = arguments.bind("split", {"sep", "maxsplit"});
  const int64_t most = bound[1] == nullptr ? -1 : need_integer(*bound[1], "split");
  budget->bytes(text.size());
  if (bound[0] == nullptr || bound[0]->is_none()) {
    if (from_right && most >= 0) fault("rsplit without a separator is not supported");
    return split_at_space(text, most, budget);
  }
  const Text& separator = need_text(*bound[0], "split");
  if (separator.empty()) fault("split by an empty separator");
  std::vector<size_t> places;
  if (!from_right) {
    for (size_t at = 0; (most < 0 || static_cast<int64_t>(places.size()) < most) &&
                        (at = find(text, separator, at)) != std::string::npos;
         at += separator.size()) {
      places.push_back(at);
    }
  } else {
    for (size_t end = text.size();
         (most < 0 || static_cast<int64_t>(places.size()) < most) && end >= separator.size();) {
      const size_t at = text.view().substr(0, end).rfind(separator.view());
      if (at == std::string_view::npos) break;
      places.push_back(at);
      end = at;
    }
    std::ranges::reverse(places);
  }
  budget->step(static_cast<int64_t>(places.size()));
  Items parts;
  size_t done = 0;
  for (const size_t at : places) {
    parts.push_back(Value::text(text.slice(done, at)));
    done = at + separator.size();
  }
  parts.push_back(Value::text(text.slice(done, text.size())));
  return Value::list(std::move(parts));
}

Value text_method(const Text& text, std::string_view name, const Arguments& arguments, Budget* budget) {
  budget->bytes(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const auto bound = arguments.bind(name, {"chars"});
    const Side side = name == "strip" ? Side::kBoth : name == "lstrip" ? Side::kLeft : Side::kRight;
    return Value::text(strip(text, side, bound[0]));
  }
  if (name == "startswith" || name == "endswith") {
    const auto bound = arguments.bind(name, {"part"});
    if (bound[0] == nullptr) fault("{} needs an argument", name);
    return Value::boolean(has_end(text, *bound[0], name == "startswith", name));
  }
  if (name == "split" || name == "rsplit") return split(text, arguments, name == "rsplit", budget);
  if (name == "replace") {
    const auto bound = arguments.bind(name, {"old", "new", "count"});
    if (bound[0] == nullptr || bound[1] == nullptr) fault("replace needs two arguments");
    const int64_t count = bound[2] == nullptr ? -1 : need_integer(*bound[2], name);
    return Value::text(replace(text, need_text(*bound[0], name), need_text(*bound[1], name), count, budget));
  }
  if (name == "find") {
    const auto bound = arguments.bind(name, {"part"});
    if (bound[0] == nullptr) fault("find needs an argument");
    const size_t at = find(text, need_text(*bound[0], name), 0);
    if (at == std::string::npos) return Value::integer(-1);
    int64_t points = 0;
    for (size_t i = 0; i < at; ++points) next_code_point(text.view(), &i);
    return Value::integer(points);
  }
  if (name == "join") {
    const auto bound = arguments.bind(name, {"parts"});
    if (bound[0] == nullptr) fault("join needs an argument");
    Text result;
    bool first = true;
    for (const Value& part : iterate(*bound[0], budget)) {
      if (!std::exchange(first, false)) result.append(text);
      budget->bytes(text.size() + need_text(part, name).size());
      result.append(part.as_text());
    }
    return Value::text(std::move(result));
  }
  if (name == "upper" || name == "lower" || name == "capitalize" || name == "title") {
    (void)arguments.bind(name, {});
    return Value::text(with_case(text, name, budget));
  }
  fault("the method {} of str is not supported", name);
}

Value dict_method(const Dict& dict, std::string_view name, const Arguments& arguments, Budget* budget) {
  budget->step(static_cast<int64_t>(dict.entries.size()));
  if (name == "get") {
    const auto bound = arguments.bind(name, {"key", "default"});
    if (bound[0] == nullptr) fault("get needs an argument");
    const Value* found = bound[0]->is_text() ? dict.find(bound[0]->as_text().view()) : nullptr;
    return found != nullptr ? *found : bound[1] != nullptr ? *bound[1] : Value::none();
  }
  if (name != "items" && name != "keys" && name != "values") fault("the method {} of dict is not supported", name);
  (void)arguments.bind(name, {});
  Items result;
  for (const auto& [key, value] : dict.entries) {
    if (name == "items") {
      result.push_back(Value::tuple({Value::text(key), value}));
    } else {
      result.push_back(name == "keys" ? Value::text(key) : value);
    }
  }
  return Value::list(std::move(result));
}

}  // namespace

bool is_method(const Value& object, std::string_view name) {
  static constexpr std::string_view kDict[] = {"get",   "items",      "keys",    "values", "pop",     "copy",
                                               "clear", "setdefault", "popitem", "update", "fromkeys"};
  static constexpr std::string_view kText[] = {"strip",   "lstrip",     "rstrip",       "startswith",   "endswith",
                                               "split",   "rsplit",     "replace",      "find",         "join",
                                               "upper",   "lower",      "capitalize",   "title",        "format",
                                               "index",   "count",      "removeprefix", "removesuffix", "isdigit",
                                               "isalpha", "splitlines", "partition",    "rpartition",   "zfill"};
  static constexpr std::string_view kList[] = {"append", "extend", "index",   "count",
                                               "pop",    "insert", "reverse", "sort"};
  const auto among = [&](const auto& names) { return std::ranges::find(names, name) != std::end(names); };
  return (object.is_dict() && among(kDict)) || (object.is_text() && among(kText)) || (object.is_list() && among(kList));
}

Value call_method(const Value& object, std::string_view name, const Arguments& arguments, Budget* budget) {
  if (object.is_text()) return text_method(object.as_text(), name, arguments, budget);
  if (object.is_dict()) return dict_method(object.as_dict(), name, arguments, budget);
  fault("the method {} of {} is not supported", name, object.type_name());
}

Text strip(const Text& text, Side side, const Value* characters) {
  std::vector<uint32_t> taken;
  if (characters != nullptr && !characters->is_none()) {
    const Text& set = need_text(*characters, "strip");
    for (size_t at = 0; at < set.size();) taken.push_back(next_code_point(set.view(), &at));
    std::ranges::sort(taken);
  }
  const bool by_set = characters != nullptr && !characters->is_none();
  const auto goes = [&](uint32_t point) {
    return by_set ? std::ranges::binary_search(taken, point) : is_stripped(point);
  };
  size_t begin = 0, end = text.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    if (!goes(next_code_point(text.view(), &next))) break;
    begin = next;
  }
  while (side != Side::kLeft && end > begin) {
    size_t previous = end;
    if (!goes(previous_code_point(text.view(), end, &previous))) break;
    end = previous;
  }
  return text.slice(begin, end);
}

Text replace(const Text& text, const Text& from, const Text& to, int64_t count, Budget* budget) {
  if (from.empty()) fault("replace of an empty text is not supported");
  Text result;
  size_t done = 0;
  for (size_t at = 0; count != 0 && (at = find(text, from, at)) != std::string::npos; --count) {
    budget->bytes(to.size() + from.size());
    budget->step();
    result.append(text, done, at);
    result.append(to);
    done = at += from.size();
  }
  result.append(text, done, text.size());
  return result;
}

// By the code points' simple mappings: the few that become several letters ("ß") stay.
Text with_case(const Text& text, std::string_view method, Budget* budget) {
  budget->bytes(text.size());
  Text result;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const auto point = static_cast<int32_t>(next_code_point(text.view(), &at));
    const bool upper = method == "upper" || (method != "lower" && begins);
    const int32_t mapped =
        upper ? (method == "upper" ? utf8proc_toupper(point) : utf8proc_totitle(point)) : utf8proc_tolower(point);
    std::string bytes;
    append_utf8(static_cast<uint32_t>(mapped), &bytes);
    result.append_bytes(bytes, text.is_foreign(begin));
    const utf8proc_category_t category = utf8proc_category(point);
    const bool cased =
        category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
    begins = method == "title" && !cased;
  }
  return result;
}

}  // namespace coprime::templates
