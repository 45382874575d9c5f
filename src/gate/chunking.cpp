#include "gate/chunking.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "gate/constants.h"

namespace coprime {
namespace {
size_t divide_up(size_t value, size_t unit) { return value / unit + (value % unit != 0 ? 1 : 0); }
}  // namespace

RowClass row_class(int rows) {
  if (rows <= 1) return RowClass::kOne;
  if (rows <= 8) return RowClass::kUpTo8;
  return rows <= 32 ? RowClass::kUpTo32 : RowClass::kBulk;
}

int class_rows(RowClass row_class) {
  switch (row_class) {
    case RowClass::kOne:
      return 1;
    case RowClass::kUpTo8:
      return 8;
    case RowClass::kUpTo32:
      return 32;
    case RowClass::kBulk:
      break;
  }
  COPRIME_CHECK(false, "bulk has no largest row count");
  return 0;
}

int64_t chunk_count(size_t bytes, size_t cap) {
  return static_cast<int64_t>(std::max<size_t>(1, divide_up(bytes, cap)));
}

Piece chunk_at(size_t bytes, size_t cap, int64_t index) {
  size_t begin = 0;
  if (__builtin_mul_overflow(static_cast<size_t>(index), cap, &begin) || begin >= bytes) return {bytes, 0};
  return {begin, std::min(cap, bytes - begin)};
}

size_t message_bytes(size_t content, size_t room, const QueuePairLimits& limits) {
  return limits.frame_bytes != 0 ? room : std::max<size_t>(1, content);
}

size_t total_message_bytes(size_t content, size_t capacity, size_t cap, const QueuePairLimits& limits) {
  if (limits.frame_bytes != 0) return capacity;
  return content + static_cast<size_t>(chunk_count(capacity, cap)) - divide_up(content, cap);
}

int64_t frames(size_t bytes, const QueuePairLimits& limits) {
  if (limits.frame_bytes == 0) return 1;
  return static_cast<int64_t>(std::max<size_t>(1, divide_up(bytes, limits.frame_bytes)));
}

int64_t decode_vector_chunks(size_t bytes, size_t cap) {
  const int64_t chunks = chunk_count(bytes, cap);
  if (cap == DS4_TP_RDMA_MAX_MSG && chunks > kGateVectorChunks) {
    fail(ErrorKind::kUsage, "gate vector {} bytes exceeds twice the driver's {} message limit", bytes,
         DS4_TP_RDMA_MAX_MSG);
  }
  return chunks;
}

}  // namespace coprime
