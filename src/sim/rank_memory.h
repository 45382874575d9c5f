// What lies in a rank's HBM region in data mode: Q, the rank's keys (tiles of [d, tile], one behind another) and values
// [tokens, d], both made when they are read, and the output where the rank is a root.
#pragma once

#include <vector>

#include "sim/inputs.h"
#include "tl/evaluate.h"

namespace coprime::sim {

// The buffers of a launch.
inline constexpr tl::Buffer kQueries{0, tl::Type::kBf16}, kKeys{1, tl::Type::kBf16}, kValues{2, tl::Type::kBf16},
    kOutput{3, tl::Type::kBf16};

class RankMemory : public tl::Hbm {
 public:
  // The rank's tokens begin at `first_token` of the sequence of the KV head.
  RankMemory(const Inputs& inputs, int head, int64_t first_token, int64_t tile, int64_t d)
      : inputs_(inputs), head_(head), first_token_(first_token), tile_(tile), d_(d) {}

  void read(const tl::HbmRef& from, std::byte* into) override;
  void write(const tl::HbmRef& to, const std::byte* from) override;

  const std::vector<float>& output() const { return output_; }
  int stores() const { return stores_; }

 private:
  const Inputs& inputs_;
  const int head_;
  const int64_t first_token_, tile_, d_;
  std::vector<uint16_t> row_;
  std::vector<float> output_;
  int stores_ = 0;
};

}  // namespace coprime::sim
