#include "collective/cuda/flags.cuh"
#include "collective/cuda/kernels.h"

namespace coprime {

Kernel flags_kernel_for(DType type) {
  const void* const function = type == DType::kBF16  ? reinterpret_cast<const void*>(flags_kernel<Bf16>)
                               : type == DType::kF16 ? reinterpret_cast<const void*>(flags_kernel<F16>)
                                                     : reinterpret_cast<const void*>(flags_kernel<F32>);
  return {function, 512};
}

}  // namespace coprime
