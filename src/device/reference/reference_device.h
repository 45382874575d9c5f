// The oracle: every operation as the formula reads, one thread, plain C++. Slow.
#pragma once

#include <atomic>
#include <memory>

#include "device/device.h"
#include "device/math_mode.h"

namespace coprime {

std::unique_ptr<Device> make_reference_device(MathMode math = MathMode::kF32,
                                              std::atomic<uint64_t>* progress = nullptr);

}  // namespace coprime
