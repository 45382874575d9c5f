// The numbers that data mode computes with: made row by row when they are read, so that a context of any length needs
// no memory. bf16.
#pragma once

#include <cstdint>
#include <span>

namespace coprime::tl {

class Inputs {
 public:
  virtual ~Inputs() = default;
  // `head` counts KV heads; query row `position * G + g` is that of query head g of the KV head's G.
  virtual void query(int head, int64_t row, std::span<uint16_t> out) const = 0;
  virtual void key(int head, int64_t token, std::span<uint16_t> out) const = 0;
  virtual void value(int head, int64_t token, std::span<uint16_t> out) const = 0;
};

// Numbers in [-2, 2] that depend on seed, tensor, head, row and column alone: multiples of 1/64, so that bf16 holds
// them exactly.
class CounterInputs : public Inputs {
 public:
  explicit CounterInputs(uint64_t seed = 1) : seed_(seed) {}
  void query(int head, int64_t row, std::span<uint16_t> out) const override;
  void key(int head, int64_t token, std::span<uint16_t> out) const override;
  void value(int head, int64_t token, std::span<uint16_t> out) const override;

 private:
  uint64_t seed_;
};

}  // namespace coprime::tl
