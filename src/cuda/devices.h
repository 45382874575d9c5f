// The GPUs that this process sees.
#pragma once

#include <array>
#include <string>

#include "cuda/status.h"

namespace coprime {

// 0 where there is no GPU or no driver.
inline int count_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

// Of this thread from now on.
inline void use_gpu(int device) { check_cuda(cudaSetDevice(device), "use the GPU"); }

struct GpuIdentity {
  std::string name;                // "NVIDIA H200"
  std::array<char, 16> uuid = {};  // the same in every process
  std::string pci_address;         // "0000:1b:00.0"
};

inline GpuIdentity identify_gpu(int device) {
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, device), "ask for a GPU's properties");
  GpuIdentity identity{.name = properties.name};
  for (size_t i = 0; i < identity.uuid.size(); ++i) identity.uuid[i] = properties.uuid.bytes[i];
  char address[32] = {};
  check_cuda(cudaDeviceGetPCIBusId(address, sizeof address, device), "ask for a GPU's PCI address");
  identity.pci_address = address;
  return identity;
}

}  // namespace coprime
