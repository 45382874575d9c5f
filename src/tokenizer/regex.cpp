#include "tokenizer/regex.h"

#include <algorithm>

#include "base/error.h"
#include "base/pcre2_handles.h"
#include "json/json.h"

namespace coprime {
namespace {

std::string pcre2_message(int code) {
  unsigned char text[256];
  if (pcre2_get_error_message(code, text, sizeof text) < 0) return fmt::format("PCRE2 error {}", code);
  return reinterpret_cast<const char*>(text);
}

// Steps that one match may take: the tokenizers' patterns need a few for each byte they pass.
uint32_t step_limit(size_t bytes) { return static_cast<uint32_t>(100'000 + 16 * std::min<size_t>(bytes, 100'000'000)); }

constexpr uint32_t kHeapLimitKib = 64 * 1024;

}  // namespace

struct MatchRoom::State {
  Pcre2Handle<pcre2_match_data> data = pcre2_owned(pcre2_match_data_create(1, nullptr));
  Pcre2Handle<pcre2_match_context> context = pcre2_owned(pcre2_match_context_create(nullptr));
};

MatchRoom::MatchRoom() : state_(std::make_unique<State>()) {
  pcre2_set_heap_limit(state_->context.get(), kHeapLimitKib);
}
MatchRoom::~MatchRoom() = default;

struct Regex::State {
  Pcre2Handle<pcre2_code> code;
  std::string where;
};

Regex::Regex(std::string_view oniguruma_pattern, const std::string& where) : state_(std::make_unique<State>()) {
  const std::string pattern = pcre2_pattern(oniguruma_pattern, where);
  const auto context = pcre2_owned(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  size_t position = 0;
  state_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error,
                                   &position, context.get()));
  if (state_->code == nullptr) {
    fail(ErrorKind::kModel, "{}: this is no pattern: {}, at byte {} of {}", where, pcre2_message(error), position,
         coprime::quoted(pattern));
  }
  state_->where = where;
  // Without a just-in-time compiler, or memory that may hold its code, PCRE2 interprets the pattern: slower, the same
  // matches.
  (void)pcre2_jit_compile(state_->code.get(), PCRE2_JIT_COMPLETE);
}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

bool Regex::find(std::string_view text, size_t from, MatchRoom* room, size_t* begin, size_t* end) const {
  MatchRoom::State& match = *room->state_;
  const uint32_t limit = step_limit(text.size() - from);
  pcre2_set_match_limit(match.context.get(), limit);
  pcre2_set_depth_limit(match.context.get(), limit);
  const auto run = [&](uint32_t options) {
    return pcre2_match(state_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, match.data.get(), match.context.get());
  };
  int result = run(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0) {
    fail(ErrorKind::kModel, "{}: matching the pattern failed: {}, from byte {} of a text of {} bytes", state_->where,
         pcre2_message(result), from, text.size());
  }
  const size_t* bounds = pcre2_get_ovector_pointer(match.data.get());
  *begin = bounds[0];
  *end = bounds[1];
  return true;
}

}  // namespace coprime
