#include "cuda/nvml.h"

#include <dlfcn.h>

namespace coprime {
namespace {

using Device = void*;
constexpr unsigned kMostNvlinks = 18;

}  // namespace

GpuPortState read_gpu_port(const std::string& pci_address) {
  GpuPortState state;
  void* const library = ::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return state;
  const auto find = [&]<class Function>(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    return function != nullptr;
  };
  int (*init)() = nullptr, (*shutdown)() = nullptr, (*by_address)(const char*, Device*) = nullptr;
  if (find("nvmlInit_v2", init) && find("nvmlShutdown", shutdown) &&
      find("nvmlDeviceGetHandleByPciBusId_v2", by_address) && init() == 0) {
    Device device = nullptr;
    if (by_address(pci_address.c_str(), &device) == 0) {
      const auto read = [&](const char* name, int& value) {
        int (*get)(Device, unsigned*) = nullptr;
        unsigned found = 0;
        if (find(name, get) && get(device, &found) == 0) value = static_cast<int>(found);
      };
      read("nvmlDeviceGetCurrPcieLinkGeneration", state.pcie_generation);
      read("nvmlDeviceGetCurrPcieLinkWidth", state.pcie_width);
      read("nvmlDeviceGetMaxPcieLinkGeneration", state.most_generation);
      read("nvmlDeviceGetMaxPcieLinkWidth", state.most_width);
      int (*link_state)(Device, unsigned, int*) = nullptr;
      if (find("nvmlDeviceGetNvLinkState", link_state)) {
        state.nvlinks = 0;
        for (unsigned link = 0; link < kMostNvlinks; ++link) {
          int up = 0;
          if (link_state(device, link, &up) == 0 && up == 1) ++state.nvlinks;
        }
      }
    }
    shutdown();
  }
  ::dlclose(library);
  return state;
}

}  // namespace coprime
