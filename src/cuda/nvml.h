// What the driver's management library (NVML, loaded at run time) tells of a GPU's ports.
#pragma once

#include <string>

namespace coprime {

// -1: not known.
struct GpuPortState {
  int pcie_generation = -1, pcie_width = -1;  // negotiated now; an idle GPU may lower the generation
  int most_generation = -1, most_width = -1;  // what GPU and slot can do
  int nvlinks = -1;                           // that are up
};

// All unknown where there is no NVML.
GpuPortState read_gpu_port(const std::string& pci_address);

}  // namespace coprime
