// Which kernel sums the vectors of GPU ranks: a table of rows, and the selection from it. Pure: shape, type, world and
// limits in, a row and the reasons out, so that all ranks choose alike and a test needs no GPU.
//
// A row that loses bits is chosen only for a call that asks for it by name; what no row takes goes to the library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace coprime {

enum class AllReduceMethod : uint8_t {
  kPush,          // data is its own flag: every rank pushes its vector to all and sums all
  kTwoShot,       // likewise, but each rank sums a part and pushes the sum
  kFlags,         // blocks of the vector, each with a flag
  kWht6,          // 6.25 bits an element, with flags
  kPushNormQuant  // kPush fused with residual, norm and FP8
};

// What every rank can say before the first call.
struct AllReduceLimits {
  int world = 0;
  bool peer_access = true;     // every rank reaches every other's memory, written and read back
  int64_t exact_bytes = 0;     // the largest vector of an exact row
  int64_t lossy_bytes = 0;     // of a lossy row; 0: none is allowed
  int64_t push_bytes = 0;      // up to here data is its own flag
  int64_t two_shot_bytes = 0;  // from here to push_bytes a part is summed by one rank; 0: never
};

// The cut-offs of a world whose slowest pair pushes so many GB/s (0: not measured yet). Exact: 48 MiB of two ranks;
// else 2 MiB, and 4 MiB once the slowest link is known to reach kFastLink. Lossy: what the slots hold, for two ranks,
// and for more once that link is fast enough.
inline constexpr double kFastLink = 13;
AllReduceLimits all_reduce_limits(int world, bool peer_access, double slowest_link_gb_s, int64_t lossy_slot_bytes);

// How large the slots must be.
int64_t slot_bytes(const AllReduceLimits& limits);

struct AllReduceCall {
  DType type = DType::kBF16;
  int64_t elements = 0;
  std::string_view row;     // "": any exact one; else the only one that will do: "wht6"
  bool norm_quant = false;  // residual, norm and FP8 follow: rows of `columns`
  int64_t rows = 0, columns = 0;

  int64_t bytes() const { return elements * dtype_bytes(type); }
};

struct AllReduceRow {
  std::string_view name;
  AllReduceMethod method;
  bool exact;
  int min_world, max_world;
  std::vector<DType> types;
  int64_t elements_multiple;  // besides 16 bytes
  int64_t min_bytes;
};

const std::vector<AllReduceRow>& all_reduce_rows();

struct AllReduceChoice {
  const AllReduceRow* row = nullptr;  // null: the library
  std::vector<std::string> reasons;   // a line for each row before the chosen one, or for all: "push: ..."

  std::string_view name() const { return row == nullptr ? "library" : row->name; }
};

AllReduceChoice choose_all_reduce(const AllReduceLimits& limits, const AllReduceCall& call);

}  // namespace coprime
