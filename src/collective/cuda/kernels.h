// The kernels, by what they take. Each is told apart by its arguments, which launch() hands on by address:
//   sum kernels          (GpuWorld, const void* in, void* out, int64_t count); count in 16-byte words, of wht6 elements
//   push_norm_quant      (GpuWorld, const void* in, NormArguments)
//   gather               (GpuWorld, const void* in, GatherArguments)
//   add_norm_quant       (const void* sums, NormArguments)
//   add_norm_rows        (const float* sums, FloatRows residual, const float* weight, float eps, FloatRows normed,
//                        int64_t columns)
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>

#include "tensor/dtype.h"

namespace coprime {

struct Kernel {
  const void* function = nullptr;
  int threads = 0;            // of a block
  int cluster = 1;            // blocks; a grid is a multiple
  bool begins_early = false;  // before the kernel ahead in the stream has ended, for which it waits by itself
};

Kernel push_kernel_for(DType type, int world);
Kernel two_shot_kernel_for(DType type);
Kernel flags_kernel_for(DType type);
Kernel wht6_kernel_for(DType type);
Kernel push_norm_quant_kernel_for(int world, int64_t rows, int64_t columns, bool clusters);
Kernel add_norm_quant_kernel_for(int64_t columns);
Kernel add_norm_rows_kernel_for();
Kernel gather_kernel_for();

// Of a new slab: empty words into its payload (uint4* words, int64_t count); (GpuWorld, uint32_t mark) leave a mark in
// every peer's control page; (GpuWorld, uint32_t mark, uint32_t* wrong) a bit for each rank whose mark is not here, or
// whose memory does not give this rank's mark back.
Kernel fill_empty_kernel();
Kernel leave_marks_kernel();
Kernel check_marks_kernel();

// Loads the kernel, so that no launch of it has to while others wait; how many of its blocks the current device holds
// at once.
int resident_blocks(const Kernel& kernel);
// Whether the kernels were built for GPUs that have clusters of blocks and kernels that begin early.
bool built_for_clusters();

// How `kernel` is launched. The attributes are part of it: no copies.
struct LaunchShape {
  LaunchShape(const Kernel& kernel, int blocks, cudaStream_t stream);
  LaunchShape(const LaunchShape&) = delete;
  cudaLaunchConfig_t config = {};
  std::array<cudaLaunchAttribute, 2> attributes = {};
};

template <class... Arguments>
cudaError_t launch(const Kernel& kernel, int blocks, cudaStream_t stream, const Arguments&... arguments) {
  std::array<void*, sizeof...(Arguments)> addresses = {const_cast<void*>(static_cast<const void*>(&arguments))...};
  const LaunchShape shape(kernel, blocks, stream);
  return cudaLaunchKernelExC(&shape.config, kernel.function, addresses.data());
}

}  // namespace coprime
