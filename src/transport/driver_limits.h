// What RDMA drivers are known to take, by ds4's experience and where it has names for them with those names. Providers
// ask for no more, and gate/ cuts contributions by them.
#pragma once

#include <cstddef>

namespace coprime {

inline constexpr size_t DS4_TP_RDMA_MAX_MSG = 16384;  // bytes of one message on UC
inline constexpr int DS4_TP_RDMA_BULK_SLOTS = 64;     // requests of one posted chain
inline constexpr int kMaxGrantedDepth = 4096;         // what is believed of a granted queue depth

}  // namespace coprime
