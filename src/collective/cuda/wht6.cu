#include "collective/cuda/kernels.h"
#include "collective/cuda/wht6.cuh"

namespace coprime {

Kernel wht6_kernel_for(DType type) {
  const void* const function = type == DType::kBF16 ? reinterpret_cast<const void*>(wht6_kernel<Bf16>)
                                                    : reinterpret_cast<const void*>(wht6_kernel<F16>);
  return {function, 128};
}

}  // namespace coprime
