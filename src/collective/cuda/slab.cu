// What is done to a slab before its first call.
#include "collective/all_reduce/push_protocol.h"
#include "collective/cuda/kernels.h"
#include "collective/cuda/launch.cuh"

namespace coprime {
namespace {

constexpr int64_t kMarksBegin = 1024;  // in the control page: a mark of each rank, 32 bytes apart

__device__ uint32_t* mark_of(const GpuWorld& world, int at, int by) {
  return reinterpret_cast<uint32_t*>(world.slabs[at] + kMarksBegin + 32 * by);
}

__device__ uint32_t mark(uint32_t base, int at, int by) { return base ^ static_cast<uint32_t>(at * 16 + by + 1); }

__global__ void fill_empty(uint4* words, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step)
    words[i] = make_uint4(kEmptyWord, kEmptyWord, kEmptyWord, kEmptyWord);
}

__global__ void leave_marks(const __grid_constant__ GpuWorld world, uint32_t base) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= world.world) return;
  ptx::store_relaxed_system(mark_of(world, peer, world.rank), mark(base, peer, world.rank));
  ptx::fence_system();
}

__global__ void check_marks(const __grid_constant__ GpuWorld world, uint32_t base, uint32_t* wrong) {
  const int peer = static_cast<int>(threadIdx.x);
  if (peer >= world.world) return;
  const bool came = ptx::load_relaxed_system(mark_of(world, world.rank, peer)) == mark(base, world.rank, peer);
  const bool gives_back = ptx::load_relaxed_system(mark_of(world, peer, world.rank)) == mark(base, peer, world.rank);
  if (!came || !gives_back) atomicOr(wrong, 1u << peer);
}

}  // namespace

Kernel fill_empty_kernel() { return {reinterpret_cast<const void*>(fill_empty), 512}; }
Kernel leave_marks_kernel() { return {reinterpret_cast<const void*>(leave_marks), 32}; }
Kernel check_marks_kernel() { return {reinterpret_cast<const void*>(check_marks), 32}; }

LaunchShape::LaunchShape(const Kernel& kernel, int blocks, cudaStream_t stream) {
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(kernel.threads));
  config.stream = stream;
  config.attrs = attributes.data();
  if (kernel.begins_early) {
    cudaLaunchAttribute& early = attributes[config.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  if (kernel.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(kernel.cluster);
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  }
}

int resident_blocks(const Kernel& kernel) {
  int device = 0, processors = 0, blocks = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess) return 0;
  if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.function, kernel.threads, 0) != cudaSuccess)
    return 0;
  if (kernel.cluster == 1) return blocks * processors;
  int clusters = 0;  // whose blocks must be neighbours
  const LaunchShape shape(kernel, kernel.cluster, nullptr);
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel.function, &shape.config) != cudaSuccess) return 0;
  return clusters * kernel.cluster;
}

bool built_for_clusters() {
  cudaFuncAttributes attributes = {};
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(fill_empty)) == cudaSuccess &&
         attributes.ptxVersion >= 90;
}

}  // namespace coprime
