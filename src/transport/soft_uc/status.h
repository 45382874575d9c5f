// The statuses of a software device's completions, with the numbers of verbs.
#pragma once

#include <cstdint>

namespace coprime {

inline constexpr uint32_t kSoftUcSuccess = 0;
inline constexpr uint32_t kSoftUcLengthError = 1;    // the message does not fit its receive
inline constexpr uint32_t kSoftUcGeneralError = 21;  // for no reason

}  // namespace coprime
