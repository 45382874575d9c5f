// What the CUDA runtime answers: an Error that says what could not be done, and why.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "base/error.h"

namespace coprime {

// Error(kInternal) "could not <doing>: <CUDA's text>" unless the status is success.
inline void check_cuda(cudaError_t status, std::string_view doing) {
  if (status != cudaSuccess) [[unlikely]]
    fail(ErrorKind::kInternal, "could not {}: {} ({})", doing, cudaGetErrorString(status), cudaGetErrorName(status));
}

}  // namespace coprime
