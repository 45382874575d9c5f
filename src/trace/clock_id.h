// Names the clock that now_ns() reads: processes with one name may compare their times.
#pragma once

#include <cstdint>

namespace coprime {

// The same for all processes of one boot of one host. 0 where the system does not tell: then it equals nobody's.
uint64_t clock_id();

}  // namespace coprime
