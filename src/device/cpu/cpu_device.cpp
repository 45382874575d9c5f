#include "device/cpu/cpu_device.h"

#include "device/reference/reference_device.h"

namespace coprime {

Isa best_isa(Isa) { return Isa::kReference; }

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kReference:
      break;
  }
  return "reference";
}

std::unique_ptr<Device> make_cpu_device(const CpuOptions& options) { return make_reference_device(options.progress); }

}  // namespace coprime
