// The instruction sets that a host device has kernels for.
#pragma once

#include <cstdint>
#include <string_view>

namespace coprime {

enum class Isa : uint8_t { kReference, kAvx2, kAvx512 };

// The best that this CPU has, but no better than `limit`. kReference where it has no AVX2 with FMA and F16C.
Isa best_isa(Isa limit);
std::string_view isa_name(Isa isa);

}  // namespace coprime
