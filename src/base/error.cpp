#include "base/error.h"

#include <system_error>

namespace coprime {

std::string errno_text(int error) { return std::generic_category().message(error); }

}  // namespace coprime
