// Text from a file, fit for a message.
#pragma once

#include <string>
#include <string_view>

namespace coprime {

// Control characters become '?', a long text is cut.
std::string printable(std::string_view name);

}  // namespace coprime
