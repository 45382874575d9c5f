// How contributions are cut into messages. Pure.
//
// A contribution is cut at the link's cap, in consecutive pieces; a link without a cap does not cut. Receives are
// posted before the length of what comes is known: a gate's receives have the capacity of its row class, and a
// contribution travels as just as many messages as its capacity has pieces. A message is never empty: a piece without
// content travels as one byte. Where a send and the receive it meets must cover the same frames, every message is
// padded to its receive.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/queue_pair.h"

namespace coprime {

// Steps of like row counts share one set of posted receives.
enum class RowClass : uint32_t { kOne, kUpTo8, kUpTo32, kBulk };
inline constexpr int kWindowClasses = 3;  // all but kBulk

RowClass row_class(int rows);
int class_rows(RowClass row_class);  // the largest of a class that is not bulk

struct Piece {
  size_t begin = 0, bytes = 0;
};

int64_t chunk_count(size_t bytes, size_t cap);            // at least 1
Piece chunk_at(size_t bytes, size_t cap, int64_t index);  // {bytes, 0} past the end

// What travels of a piece with so much content that meets a receive with so much room.
size_t message_bytes(size_t content, size_t room, const QueuePairLimits& limits);
// Of all messages of a contribution whose receives have room for `capacity`.
size_t total_message_bytes(size_t content, size_t capacity, size_t cap, const QueuePairLimits& limits);

// Frames of so many bytes that a message covers; 1 where the link counts messages.
int64_t frames(size_t bytes, const QueuePairLimits& limits);

// The chunks of one row's vector: at most kGateVectorChunks where the cap is DS4_TP_RDMA_MAX_MSG. Error(kUsage) for a
// longer vector there: it does not travel in a decode window.
int64_t decode_vector_chunks(size_t bytes, size_t cap);

}  // namespace coprime
