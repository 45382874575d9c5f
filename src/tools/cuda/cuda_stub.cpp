// Where there is no nvcc to build with.
#include "base/error.h"
#include "tools/gpu_link.h"

namespace coprime {

GpuLinkFigures measure_gpu_links(const GpuLinkOptions&) {
  fail(ErrorKind::kUsage, "this coprime was built without CUDA: install the CUDA toolkit (nvcc) and build again");
}

}  // namespace coprime
