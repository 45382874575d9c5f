// A tensor as a file's header describes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace coprime {

struct TensorInfo {
  std::string name;
  std::string type_name;  // as the format spells it: "BF16", "F8_E4M3", "Q4_K"
  DType type = DType::kOther;
  std::vector<int64_t> shape;      // row-major: the last axis is contiguous
  uint64_t offset = 0, bytes = 0;  // from the start of the file
};

}  // namespace coprime
