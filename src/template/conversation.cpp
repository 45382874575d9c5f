#include "template/conversation.h"

#include <algorithm>

#include "base/error.h"
#include "json/json.h"

namespace coprime::templates {
namespace {

using simdjson::dom::element;
using simdjson::dom::element_type;

class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  Value value(element from) const {
    switch (from.type()) {
      case element_type::OBJECT:
        return Value::dict(dict(from));
      case element_type::ARRAY: {
        Items items;
        for (const element each : simdjson::dom::array(from)) items.push_back(value(each));
        return Value::list(std::move(items));
      }
      case element_type::STRING:
        return Value::text(Text::foreign(std::string(std::string_view(from))));
      case element_type::BOOL:
        return Value::boolean(bool(from), true);
      case element_type::INT64:
        return Value::integer(int64_t(from), true);
      case element_type::UINT64:
        fail(ErrorKind::kUsage, "{}: the number {} is out of range", where_, uint64_t(from));
      case element_type::DOUBLE:
        return Value::real(double(from), true);
      default:
        return Value::none(true);
    }
  }

  Dict dict(element from) const {
    Dict result;
    for (const auto& [key, each] : simdjson::dom::object(from))
      result.set(Text::foreign(std::string(key)), value(each));
    return result;
  }

  Value messages(element from) const {
    simdjson::dom::array list;
    if (from.get(list) != simdjson::SUCCESS) fail(ErrorKind::kUsage, "{}: expected a list of messages", where_);
    Items items;
    for (const element each : list) items.push_back(message(each, items.size()));
    return Value::list(std::move(items));
  }

 private:
  Value message(element from, size_t index) const {
    std::string_view role;
    if (!from.is_object() || from["role"].get(role) != simdjson::SUCCESS)
      fail(ErrorKind::kUsage, "{}: message {} is no object with a \"role\"", where_, index);
    Dict result = dict(from);
    static constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};
    if (std::ranges::find(kRoles, role) != std::end(kRoles))
      result.set(Text::own("role"), Value::own_text(std::string(role)));
    if (const Value* calls = result.find("tool_calls"); calls != nullptr && calls->is_list()) {
      Items parsed;
      for (const Value& call : calls->items()) parsed.push_back(with_arguments(call, index));
      result.set(Text::own("tool_calls"), Value::list(std::move(parsed)));
    }
    return Value::dict(std::move(result));
  }

  // {"function": {"arguments": "JSON"}} with the arguments as an object.
  Value with_arguments(const Value& call, size_t index) const {
    if (!call.is_dict()) return call;
    Dict result = call.as_dict();
    if (const Value* function = result.find("function")) {
      result.set(Text::own("function"), with_arguments(*function, index));
      return Value::dict(std::move(result));
    }
    const Value* arguments = result.find("arguments");
    if (arguments == nullptr || !arguments->is_text() || arguments->as_text().empty()) return call;
    const std::string where = fmt::format("{}: message {}: a tool call's arguments", where_, index);
    const JsonDocument document = JsonDocument::of_request(arguments->as_text().bytes(), where);
    if (!document.node().value().is_object()) fail(ErrorKind::kUsage, "{} are no JSON object", where);
    result.set(Text::own("arguments"), value(document.node().value()));
    return Value::dict(std::move(result));
  }

  const std::string& where_;
};

template <class F>
void with_where(const std::string& where, F read) {
  try {
    read();
  } catch (const Fault& fault) {
    fail(ErrorKind::kUsage, "{}: {}", where, fault.what());
  }
}

}  // namespace

void read_conversation(std::string_view json, const std::string& where, Dict* variables) {
  with_where(where, [&] {
    const Reader reader(where);
    const JsonDocument document = JsonDocument::of_request(json, where);
    const element root = document.node().value();
    if (!root.is_object()) return variables->set(Text::own("messages"), reader.messages(root));
    element messages;
    if (root["messages"].get(messages) != simdjson::SUCCESS)
      fail(ErrorKind::kUsage, "{}: expected a list of messages, or an object with \"messages\"", where);
    for (const auto& [key, each] : simdjson::dom::object(root)) {
      if (key != "messages") variables->set(Text::own(std::string(key)), reader.value(each));
    }
    variables->set(Text::own("messages"), reader.messages(messages));
  });
}

void read_variables(std::string_view json, const std::string& where, Dict* variables) {
  with_where(where, [&] {
    const Reader reader(where);
    const JsonDocument document = JsonDocument::of_request(json, where);
    const element root = document.node().value();
    if (!root.is_object()) fail(ErrorKind::kUsage, "{}: expected a JSON object, {{\"enable_thinking\": false}}", where);
    for (auto& [key, value] : reader.dict(root).entries) {
      if (key.bytes() == "messages")
        fail(ErrorKind::kUsage, "{}: \"messages\" are the conversation: give them there", where);
      variables->set(key, std::move(value));
    }
  });
}

}  // namespace coprime::templates
