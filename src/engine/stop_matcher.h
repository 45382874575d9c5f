// Ends a text at the first of several stop strings, which may lie across the pieces that it comes in. What could still
// become a stop string is withheld; the stop string itself is not given out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coprime {

class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty strings are ignored

  // Text that can be given out. After a match: nothing more, and stopped() holds.
  std::string push(std::string_view text);
  std::string finish();  // what was withheld, at the end of the text
  bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string withheld_;
  bool stopped_ = false;
};

}  // namespace coprime
