#include "collective/cuda/kernels.h"
#include "collective/cuda/two_shot.cuh"

namespace coprime {

Kernel two_shot_kernel_for(DType type) {
  const void* const function = type == DType::kBF16  ? reinterpret_cast<const void*>(two_shot_kernel<Bf16>)
                               : type == DType::kF16 ? reinterpret_cast<const void*>(two_shot_kernel<F16>)
                                                     : reinterpret_cast<const void*>(two_shot_kernel<F32>);
  return {function, 256};
}

}  // namespace coprime
