#include "collective/cuda/push_norm_quant.cuh"

#include "collective/all_reduce/add_norm_quant.h"
#include "collective/cuda/add_norm_rows.cuh"
#include "collective/cuda/kernels.h"

namespace coprime {
namespace {

template <int kGroups>
const void* fused_of(int world) {
  switch (world) {
    case 2:
      return reinterpret_cast<const void*>(push_norm_quant_kernel<2, kGroups>);
    case 3:
      return reinterpret_cast<const void*>(push_norm_quant_kernel<3, kGroups>);
    case 4:
      return reinterpret_cast<const void*>(push_norm_quant_kernel<4, kGroups>);
    default:
      return reinterpret_cast<const void*>(push_norm_quant_kernel<kMaxGpuRanks, kGroups>);
  }
}

// Blocks of a row, of whole warps: as many as leave each of an H200's 132 processors one of few rows.
int blocks_of_row(int64_t rows, int64_t columns) {
  int blocks = rows <= 33 ? 4 : rows <= 66 ? 2 : 1;
  while (norm_threads(columns) / 32 % blocks != 0) blocks /= 2;
  return blocks;
}

}  // namespace

Kernel push_norm_quant_kernel_for(int world, int64_t rows, int64_t columns, bool clusters) {
  const int groups = norm_groups(columns), blocks = clusters ? blocks_of_row(rows, columns) : 1;
  return {.function = groups == 1   ? fused_of<1>(world)
                      : groups == 2 ? fused_of<2>(world)
                                    : fused_of<3>(world),
          .threads = norm_threads(columns) / blocks,
          .cluster = blocks};
}

Kernel add_norm_quant_kernel_for(int64_t columns) {
  const int groups = norm_groups(columns);
  return {groups == 1   ? reinterpret_cast<const void*>(add_norm_quant_kernel<1>)
          : groups == 2 ? reinterpret_cast<const void*>(add_norm_quant_kernel<2>)
                        : reinterpret_cast<const void*>(add_norm_quant_kernel<3>),
          norm_threads(columns)};
}

Kernel add_norm_rows_kernel_for() { return {reinterpret_cast<const void*>(add_norm_rows_kernel), 256}; }

}  // namespace coprime
