#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace coprime {

void check_failed(const char* file, int line, const char* condition, const std::string& values) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s%s%s\n", file, line, condition, values.empty() ? "" : ": ",
               values.c_str());
  std::abort();
}

}  // namespace coprime
