// What a command does to data.
#pragma once

#include <array>
#include <vector>

#include "tl/command.h"

namespace coprime::tl {

// The contents of the buffers of a launch, as one PE sees them.
class Hbm {
 public:
  virtual ~Hbm() = default;
  virtual void read(const HbmRef& from, std::byte* into) = 0;
  virtual void write(const HbmRef& to, const std::byte* from) = 0;
};

// Where a command's tensors lie; null where it has none.
struct Operands {
  std::byte *a, *b, *out, *m, *l, *o;
  std::array<std::byte*, kMaxEpilogues> epilogue;
};

// Memory that is used again.
struct Workspace {
  std::vector<std::byte> hbm;
  std::vector<float> a, b, product;
  std::vector<std::byte> scores, scalars;
};

// Everything but receiving and waiting. Of a send nothing is left to do.
void evaluate(const Command& command, const Operands& operands, Hbm& hbm, Workspace& workspace);

}  // namespace coprime::tl
