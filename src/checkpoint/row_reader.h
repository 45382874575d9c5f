// The rows of a tensor that a rank holds, read from the file: of a matrix that is stored in a format, its codes and
// scales put together to blocks. Internal to checkpoint.
#pragma once

#include <memory>

#include "checkpoint/match.h"

namespace coprime {

class RowReader {
 public:
  virtual ~RowReader() = default;
  virtual int64_t row_bytes() const = 0;
  // Local rows [first, first + count), fill included, into `to`.
  virtual void read_rows(int64_t first, int64_t count, std::byte* to) = 0;
  virtual uint64_t bytes_read() const = 0;
};

// The type of the rows that come of a match: the file's, or that of a format's blocks (kMxfp4, kFp8).
DType row_type(const Match& match);

// What `rank` holds of it.
LocalTensor local_tensor(const Match& match, const ShardPlan& plan, int rank);

// `local`, of that type, must outlive the reader. Fill, where rows and columns have no real counterpart: zeros; of
// MXFP4's scales 2^0 on rows (0x7f) and 2^-127 on columns (0x00: a kernel may take a row's largest exponent for all of
// it), of FP8's 1.
std::unique_ptr<RowReader> make_row_reader(const Match& match, const LocalTensor& local);

}  // namespace coprime
