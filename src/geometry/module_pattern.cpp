#include "geometry/module_pattern.h"

#include <fnmatch.h>

#include "base/error.h"
#include "base/pcre2_handles.h"
#include "base/printable.h"

namespace coprime {
namespace {

constexpr uint32_t kMaxSteps = 1'000'000, kMaxHeapKib = 1024, kMaxNesting = 50;

PCRE2_SPTR characters(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct ModulePattern::Expression {
  Pcre2Handle<pcre2_code> code;
};

ModulePattern::ModulePattern(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {
  if (!text_.starts_with("re:")) return;
  const std::string_view pattern = std::string_view(text_).substr(3);
  const auto context = pcre2_owned(pcre2_compile_context_create(nullptr));
  pcre2_set_parens_nest_limit(context.get(), kMaxNesting);
  int error = 0;
  size_t position = 0;
  pcre2_code* code = pcre2_compile(characters(pattern), pattern.size(), PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C,
                                   &error, &position, context.get());
  if (code == nullptr) {
    fail(ErrorKind::kModel, "{} is \"{}\", which is no regular expression (at character {})", where_, printable(text_),
         position + 3);
  }
  expression_ = std::make_shared<const Expression>(Expression{Pcre2Handle<pcre2_code>(code)});
}

bool ModulePattern::matches(std::string_view module) const {
  if (expression_ == nullptr) {
    if (text_.find_first_of("*?[") != text_.npos) return ::fnmatch(text_.c_str(), std::string(module).c_str(), 0) == 0;
    if (module == text_) return true;
    return module.starts_with(text_ + ".") || module.ends_with("." + text_);
  }
  const auto data = pcre2_owned(pcre2_match_data_create(1, nullptr));
  const auto context = pcre2_owned(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMaxSteps);
  pcre2_set_depth_limit(context.get(), kMaxSteps);
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);
  const int result =
      pcre2_match(expression_->code.get(), characters(module), module.size(), 0, 0, data.get(), context.get());
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  fail(ErrorKind::kModel, "{} is \"{}\", which takes too many steps for the name {}", where_, printable(text_), module);
}

}  // namespace coprime
