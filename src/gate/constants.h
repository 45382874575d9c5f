// The constants of ds4's tensor-parallel gates, with their names and values there. Those of drivers are transport/'s.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/driver_limits.h"

namespace coprime {

inline constexpr int DS4_TP_RDMA_RECV_WINDOW = 16;          // gates whose receives are posted ahead
inline constexpr int DS4_TP_DEFAULT_GATE_TIMEOUT_MS = 750;  // of 1 to DS4_TP_MAX_GATE_TIMEOUT_MS
inline constexpr int DS4_TP_MAX_GATE_TIMEOUT_MS = 60000;

// Values that ds4 writes as numbers in its code.
inline constexpr int kBulkWindowReceives = 256;     // receives of one window of a bulk exchange, at most
inline constexpr int kGateVectorChunks = 2;         // of a decode vector where the cap is DS4_TP_RDMA_MAX_MSG
inline constexpr int kPeerClosedPolls = 16384;      // between two looks for a closed peer
inline constexpr int kProfileSamples = 430;         // between two lines of gate_profile
inline constexpr uint32_t kDecodeBarrier = 0xD1;    // the decode window is armed
inline constexpr uint32_t kVerifyBarrier = 0xB5;    // the verify window is armed
inline constexpr uint32_t kBulkHeader = 0xB16;      // a bulk exchange begins
inline constexpr uint64_t kBulkTag = 1ull << 63;    // in the ids of bulk requests and dummies
inline constexpr uint64_t kVerifyTag = 1ull << 61;  // in the ids of a verify window's receives

// Ours.
inline constexpr uint32_t kDrainBarrier = 0xD0;        // both ranks end a decode window before either sends dummies
inline constexpr uint32_t kBulkWindowBarrier = 0xB17;  // the receives of one window of a bulk exchange are posted

}  // namespace coprime
