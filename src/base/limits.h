// Bounds that hold in every folder.
#pragma once

namespace coprime {

constexpr int kMaxRanks = 16;  // of a world

}  // namespace coprime
