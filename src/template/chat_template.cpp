#include "template/chat_template.h"

#include <optional>

#include "base/error.h"
#include "gguf/gguf_file.h"
#include "json/json.h"
#include "template/conversation.h"
#include "template/interpreter.h"
#include "template/lexer.h"
#include "tokenizer/utf8.h"

namespace coprime {
namespace {

using templates::Dict;
using templates::Value;
using Variable = ChatTemplate::Variable;

constexpr int64_t kMaxConfigBytes = 64 << 20;

struct Source {
  std::string name, where, text;
};

// A string, or {"content": ...}.
std::string token_text(const JsonNode& node) {
  return std::string(node.value().is_object() ? node.need("content").text() : node.text());
}

// What a tokenizer_config.json holds.
void read_config(const std::filesystem::path& path, std::vector<Source>* sources, std::vector<Variable>* tokens) {
  const JsonDocument document(read_text_file(path, kMaxConfigBytes), path.string());
  const JsonNode root = document.node();
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    if (const auto token = root.get(name)) tokens->push_back({name, token_text(*token)});
  }
  const auto found = root.get("chat_template");
  if (!found) return;
  if (!found->value().is_array()) {
    sources->push_back({"default", found->path(), std::string(found->text())});
    return;
  }
  for (const JsonNode& each : found->items()) {
    std::string name(each.need("name").text());
    sources->push_back(
        {name, fmt::format("{} \"{}\"", found->path(), name), std::string(each.need("template").text())});
  }
}

void read_folder(const std::filesystem::path& model, std::vector<Source>* sources, std::vector<Variable>* tokens) {
  const std::filesystem::path config = model / "tokenizer_config.json", own = model / "chat_template.jinja";
  if (std::filesystem::exists(config)) read_config(config, sources, tokens);
  if (!std::filesystem::exists(own)) return;
  std::erase_if(*sources, [](const Source& source) { return source.name == "default"; });
  sources->push_back({"default", own.string(), read_text_file(own, templates::kMaxSourceBytes)});
}

void read_gguf(const std::filesystem::path& path, std::vector<Source>* sources, std::vector<Variable>* tokens) {
  const GgufFile file = GgufFile::open(path);
  const auto texts = file.strings("tokenizer.ggml.tokens");
  const int64_t last = texts ? static_cast<int64_t>(texts->size()) - 1 : -1;
  for (const std::string name : {"bos", "eos"}) {
    const auto id = last < 0 ? std::nullopt : file.integer(fmt::format("tokenizer.ggml.{}_token_id", name), 0, last);
    if (id) tokens->push_back({name + "_token", (*texts)[static_cast<size_t>(*id)]});
  }
  for (const std::string name : {"default", "tool_use"}) {
    const std::string key = name == "default" ? "tokenizer.chat_template" : "tokenizer.chat_template." + name;
    if (auto text = file.string(key)) sources->push_back({name, file.where(key), *text});
  }
}

}  // namespace

struct ChatTemplate::State {
  struct Program {
    std::string where, source;
    std::vector<templates::Statement> statements;
  };
  static Program compile(std::string_view source, const std::string& where) {
    try {
      return {where, std::string(source), templates::parse(source, where)};
    } catch (const Error& error) {
      fail(error.kind(), "{}; change that line of the template, or give the finished text (--prompt)", error.what());
    }
  }

  std::optional<Program> usual, with_tools;
  std::vector<Variable> special_tokens;
};

ChatTemplate::ChatTemplate(std::unique_ptr<State> state) : state_(std::move(state)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

ChatTemplate ChatTemplate::open(const std::filesystem::path& model) {
  auto state = std::make_unique<State>();
  std::vector<Source> sources;
  std::error_code ignored;
  if (std::filesystem::is_regular_file(model, ignored)) {
    read_gguf(model, &sources, &state->special_tokens);
  } else {
    read_folder(model, &sources, &state->special_tokens);
  }
  for (const Source& source : sources) {
    if (source.name == "default") state->usual = State::compile(source.text, source.where);
    if (source.name == "tool_use") state->with_tools = State::compile(source.text, source.where);
  }
  if (!state->usual && !state->with_tools) {
    fail(ErrorKind::kModel,
         "{}: this model has no chat template (chat_template.jinja, tokenizer_config.json's chat_template, or GGUF's "
         "tokenizer.chat_template): give the finished text (--prompt)",
         model.string());
  }
  return ChatTemplate(std::move(state));
}

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& where,
                                 std::vector<Variable> special_tokens) {
  auto state = std::make_unique<State>();
  state->usual = State::compile(source, where);
  state->special_tokens = std::move(special_tokens);
  return ChatTemplate(std::move(state));
}

RenderedChat ChatTemplate::render(std::string_view conversation, const std::string& where,
                                  const ChatOptions& options) const {
  Dict variables;
  for (const Variable& token : state_->special_tokens)
    variables.set(templates::Text::own(token.name), Value::own_text(token.text));
  for (const char* name : {"tools", "documents"}) variables.set(templates::Text::own(name), Value::none());
  variables.set(templates::Text::own("add_generation_prompt"), Value::boolean(options.add_generation_prompt));
  templates::read_conversation(conversation, where, &variables);
  if (!options.variables.empty()) templates::read_variables(options.variables, "the template's variables", &variables);

  const bool tools = variables.find("tools")->truthy();
  const bool for_tools = (tools && state_->with_tools) || !state_->usual;
  const State::Program& program = for_tools ? *state_->with_tools : *state_->usual;
  templates::Interpreter interpreter(program.statements, std::move(variables), options.now);
  try {
    const templates::Text text = interpreter.run();
    return {text.bytes(), text.foreign_ranges(), program.source};
  } catch (const templates::Refusal& refusal) {
    fail(ErrorKind::kUsage, "{}, line {}: the template refuses this conversation: {}", program.where,
         interpreter.line(), refusal.what());
  } catch (const templates::Fault& fault) {
    fail(ErrorKind::kModel,
         "{}, line {}: {}, with what {} holds: either its values are not of the types that this template takes, or the "
         "template needs changing",
         program.where, interpreter.line(), fault.what(), where);
  }
}

std::string conversation_of(std::string_view user_message) {
  if (const size_t bad = find_invalid_utf8(user_message); bad != user_message.npos) {
    fail(ErrorKind::kUsage, "the message is not UTF-8: byte {} is 0x{:02x}", bad,
         static_cast<unsigned char>(user_message[bad]));
  }
  Dict message;
  message.set(templates::Text::own("role"), Value::own_text("user"));
  message.set(templates::Text::own("content"), Value::own_text(std::string(user_message)));
  templates::Budget budget;
  return templates::to_json(Value::list({Value::dict(std::move(message))}), {}, &budget).bytes();
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm result{};
  ::localtime_r(&now, &result);
  return result;
}

}  // namespace coprime
