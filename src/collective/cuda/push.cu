#include "collective/cuda/kernels.h"
#include "collective/cuda/push.cuh"

namespace coprime {
namespace {

constexpr int kThreads = 256;

template <class Type>
const void* push_of(int world) {
  constexpr PushVariant kShipped = PushVariant::kShipped;
  switch (world) {
    case 2:
      return reinterpret_cast<const void*>(push_kernel<Type, 2, kShipped>);
    case 3:
      return reinterpret_cast<const void*>(push_kernel<Type, 3, kShipped>);
    case 4:
      return reinterpret_cast<const void*>(push_kernel<Type, 4, kShipped>);
    default:
      return reinterpret_cast<const void*>(push_kernel<Type, kMaxGpuRanks, kShipped>);
  }
}

}  // namespace

Kernel push_kernel_for(DType type, int world) {
  const void* const function = type == DType::kBF16  ? push_of<Bf16>(world)
                               : type == DType::kF16 ? push_of<F16>(world)
                                                     : push_of<F32>(world);
  return {function, kThreads};
}

}  // namespace coprime
