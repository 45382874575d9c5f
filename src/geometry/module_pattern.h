// Names of modules as configs write them: a module's own name or the end of it, the path of one that it lies in, a glob
// ("*.mlp.down_proj"), or a regular expression ("re:.*self_attn.*", matched from the name's beginning, as Python's
// re.match does). Internal to geometry.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace coprime {

class ModulePattern {
 public:
  // Error(kModel) for a regular expression that is none; `where` names the pattern's place in errors.
  ModulePattern(std::string_view text, std::string where);

  // Error(kModel) if the expression needs too many steps for a name.
  bool matches(std::string_view module) const;

 private:
  struct Expression;
  std::string text_, where_;
  std::shared_ptr<const Expression> expression_;  // none: text_ is a name, or a glob
};

}  // namespace coprime
