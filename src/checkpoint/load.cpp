// The reading of a shard. What is in memory at any time: one block of local rows. No byte of another rank's part is
// read: where a rank holds whole rows, consecutive ones come in one read; where it holds some columns, each row's
// segment is a read of its own. Measured from the page cache, that costs no more than reading whole rows and picking,
// for segments of 68 bytes as for those of 11 KiB.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/match.h"
#include "geometry/held_columns.h"
#include "tensor/block_formats.h"
#include "tensor/buffer.h"

namespace coprime {
namespace {

static_assert(std::endian::native == std::endian::little, "files hold little-endian numbers, read as they are");

constexpr int64_t kBlockBytes = 8 << 20;

int64_t matrix_columns(const TensorInfo& tensor) {
  int64_t columns = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) columns *= tensor.shape[i];
  return columns;
}

class TensorReader {
 public:
  TensorReader(const Checkpoint::Located& at, const LocalTensor& local)
      : file_(*at.file),
        offset_(at.tensor->offset),
        block_(block_shape(at.tensor->type)),
        file_row_(bytes_of(matrix_columns(*at.tensor))),
        local_row_(bytes_of(local.columns.extent)),
        local_(local) {}

  int64_t local_row_bytes() const { return local_row_; }
  uint64_t bytes_read() const { return bytes_read_; }

  // Local rows [first, first + count), fill included, into `block`.
  void read_rows(int64_t first, int64_t count, std::byte* block) {
    if (has_fill()) std::memset(block, 0, static_cast<size_t>(count * local_row_));
    for (const Span& span : local_.rows.real) {
      const int64_t begin = std::max(first, span.local), end = std::min(first + count, span.local + span.count);
      if (begin < end)
        read_real_rows(span.global + begin - span.local, end - begin, block + (begin - first) * local_row_);
    }
  }

 private:
  // Of so many columns, which are whole blocks.
  int64_t bytes_of(int64_t columns) const { return columns / block_.elements * block_.bytes; }

  bool has_fill() const {
    return local_.rows.real_count() != local_.rows.extent || local_.columns.real_count() != local_.columns.extent;
  }

  // Consecutive rows of the file to consecutive local rows.
  void read_real_rows(int64_t row, int64_t count, std::byte* to) {
    const std::vector<Span>& columns = local_.columns.real;
    const bool whole = file_row_ == local_row_ && columns.size() == 1 && bytes_of(columns[0].count) == file_row_;
    if (whole) return read(row * file_row_, count * file_row_, to);
    for (int64_t r = 0; r < count; ++r) {
      for (const Span& span : columns) {
        read((row + r) * file_row_ + bytes_of(span.global), bytes_of(span.count),
             to + r * local_row_ + bytes_of(span.local));
      }
    }
  }

  void read(int64_t from, int64_t bytes, std::byte* to) {
    file_.read(offset_ + static_cast<uint64_t>(from), {to, static_cast<size_t>(bytes)});
    bytes_read_ += static_cast<uint64_t>(bytes);
  }

  const InputFile& file_;
  uint64_t offset_, bytes_read_ = 0;
  BlockShape block_;
  int64_t file_row_, local_row_;
  const LocalTensor& local_;
};

LocalTensor local_tensor(const Match& match, const ShardPlan& plan, int rank) {
  const DType type = match.at.tensor->type;
  HeldColumns columns = hold_whole_blocks(plan.file_column_map(*match.rule, rank), block_shape(type).elements);
  return {match.rule,
          match.layer,
          match.at.tensor->name,
          type,
          plan.file_row_map(*match.rule, rank),
          std::move(columns.held),
          std::move(columns.inputs)};
}

// A scale that is no number would spread over every output.
void check_scales(const Checkpoint::Located& at, const LocalTensor& local, int64_t first,
                  std::span<const std::byte> rows) {
  if (!is_block(local.type)) return;
  const BlockShape shape = block_shape(local.type);
  const int64_t bad = find_bad_scale(local.type, rows.data(), static_cast<int64_t>(rows.size()) / shape.bytes);
  if (bad < 0) return;
  fail(ErrorKind::kModel,
       "{}: tensor {} has a block whose scale is infinite or NaN (row {} of this rank's); the file is "
       "damaged: fetch it again",
       at.file->path().string(), local.name, first + bad / (local.columns.extent / shape.elements));
}

// Grows `block` when one local row needs more than it has.
uint64_t stream(const Checkpoint::Located& at, const LocalTensor& local, Buffer* block, WeightSink* sink) {
  TensorReader reader(at, local);
  const int64_t rows = local.rows.extent, row_bytes = reader.local_row_bytes();
  if (row_bytes == 0) {
    if (rows > 0) sink->rows(0, rows, {});
    return 0;
  }
  if (block->size() < static_cast<size_t>(row_bytes))
    *block = Buffer(static_cast<size_t>(std::max(row_bytes, kBlockBytes)));
  const int64_t step = std::min(rows, static_cast<int64_t>(block->size()) / row_bytes);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    reader.read_rows(first, count, block->data());
    const std::span<const std::byte> bytes{block->data(), static_cast<size_t>(count * row_bytes)};
    check_scales(at, local, first, bytes);
    sink->rows(first, count, bytes);
  }
  return reader.bytes_read();
}

}  // namespace

Tally load_shard(const Checkpoint& checkpoint, const ShardPlan& plan, int rank, const SinkFactory& sinks) {
  COPRIME_CHECK(rank >= 0 && rank < plan.ranks(), "rank {} of {}", rank, plan.ranks());
  Matches matches = match_tensors(checkpoint, plan);
  Buffer block;
  for (const Match& match : matches.tensors) {
    const LocalTensor local = local_tensor(match, plan, rank);
    const std::unique_ptr<WeightSink> sink = sinks(local);
    if (sink) matches.tally.bytes_read += stream(match.at, local, &block, sink.get());
  }
  return matches.tally;
}

}  // namespace coprime
