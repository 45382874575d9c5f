#pragma once

namespace coprime::tl {

// Where a PE stands: numbers within the chip.
struct Place {
  int sip = 0, cube = 0, pe = 0;
};

}  // namespace coprime::tl
