#include "cuda/ipc.h"

#include <unistd.h>

namespace coprime {

MemoryOffer offer_memory(const DeviceMemory& memory) {
  MemoryOffer offer{.process = getpid(), .address = memory.data(), .bytes = memory.size()};
  check_cuda(cudaGetDevice(&offer.device), "ask for the current GPU");
  const cudaError_t status = cudaIpcGetMemHandle(&offer.handle, memory.data());
  if (status != cudaSuccess) {
    cudaGetLastError();  // ranks of one process need no handle: whoever opens it says so
    offer.handle = {};
  }
  return offer;
}

PeerMemory::PeerMemory(const MemoryOffer& offer) {
  if (offer.process == getpid()) {
    int device = 0;
    check_cuda(cudaGetDevice(&device), "ask for the current GPU");
    if (device != offer.device) {
      const cudaError_t status = cudaDeviceEnablePeerAccess(offer.device, 0);
      cudaGetLastError();  // an access that is enabled already is an error to CUDA, and sticks
      if (status != cudaSuccess && status != cudaErrorPeerAccessAlreadyEnabled) {
        fail(ErrorKind::kLink, "GPU {} does not reach GPU {}'s memory ({}): use the library's all-reduce", device,
             offer.device, cudaGetErrorString(status));
      }
    }
    data_ = offer.address;
    return;
  }
  void* data = nullptr;
  const cudaError_t status = cudaIpcOpenMemHandle(&data, offer.handle, cudaIpcMemLazyEnablePeerAccess);
  if (status != cudaSuccess) {
    cudaGetLastError();
    fail(ErrorKind::kLink,
         "the GPU memory of process {} (its GPU {}) does not open here ({}): use the library's "
         "all-reduce",
         offer.process, offer.device, cudaGetErrorString(status));
  }
  data_ = static_cast<std::byte*>(data);
  opened_ = true;
}

}  // namespace coprime
