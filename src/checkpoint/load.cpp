// The reading of a shard. What is in memory at any time: one block of local rows. No byte of another rank's part is
// read: where a rank holds whole rows, consecutive ones come in one read; where it holds some columns, each row's
// segment is a read of its own. Measured from the page cache, that costs no more than reading whole rows and picking,
// for segments of 68 bytes as for those of 11 KiB.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/row_reader.h"
#include "tensor/block_formats.h"
#include "tensor/buffer.h"

namespace coprime {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers, read as they are");

constexpr int64_t kBlockBytes = 8 << 20;

// A number that is none would spread over every output.
void check_scales(const Checkpoint::Located& at, const LocalTensor& local, int64_t first,
                  std::span<const std::byte> rows) {
  if (!is_block(local.type)) return;
  const BlockShape shape = block_shape(local.type);
  const int64_t bad = find_bad_scale(local.type, rows.data(), static_cast<int64_t>(rows.size()) / shape.bytes);
  if (bad < 0) return;
  fail(ErrorKind::kModel,
       "{}: tensor {} has a block whose scale{} is infinite or NaN (row {} of this rank's); the file is "
       "damaged: fetch it again",
       at.file->path().string(), local.name, local.type == DType::kFp8 ? " or element" : "",
       first + bad / (local.columns.extent / shape.elements));
}

// Grows `block` when one local row needs more than it has.
uint64_t stream(const Match& match, const LocalTensor& local, Buffer* block, WeightSink* sink) {
  const std::unique_ptr<RowReader> reader = make_row_reader(match, local);
  const int64_t rows = local.rows.extent, row_bytes = reader->row_bytes();
  if (row_bytes == 0) {
    if (rows > 0) sink->rows(0, rows, {});
    return 0;
  }
  if (block->size() < static_cast<size_t>(row_bytes))
    *block = Buffer(static_cast<size_t>(std::max(row_bytes, kBlockBytes)));
  const int64_t step = std::min(rows, static_cast<int64_t>(block->size()) / row_bytes);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    reader->read_rows(first, count, block->data());
    const std::span<const std::byte> bytes{block->data(), static_cast<size_t>(count * row_bytes)};
    check_scales(match.at, local, first, bytes);
    sink->rows(first, count, bytes);
  }
  return reader->bytes_read();
}

}  // namespace

Tally load_shard(const Checkpoint& checkpoint, const ShardPlan& plan, int rank, const SinkFactory& sinks) {
  COPRIME_CHECK(rank >= 0 && rank < plan.ranks(), "rank {} of {}", rank, plan.ranks());
  Matches matches = match_tensors(checkpoint, plan);
  Buffer block;
  for (const Match& match : matches.tensors) {
    const LocalTensor local = local_tensor(match, plan, rank);
    const std::unique_ptr<WeightSink> sink = sinks(local);
    if (sink) matches.tally.bytes_read += stream(match, local, &block, sink.get());
  }
  return matches.tally;
}

}  // namespace coprime
