#include "tl/command.h"

#include <array>

namespace coprime::tl {

std::string_view name_of(Op op) {
  static constexpr std::array<std::string_view, kOps> kNames = {
      "load",    "store", "composite", "dot",        "softmax_pv", "max",      "sum",       "exp",
      "maximum", "add",   "sub",       "mul",        "div",        "fill",     "broadcast", "transpose",
      "mask",    "send",  "recv",      "recv_async", "wait",       "wait_all", "repeat"};
  return kNames[static_cast<size_t>(op)];
}

}  // namespace coprime::tl
