// A schedule of 16 gates, f32 and bf16 in turns, with and without norm and FP8; contributions, and what must come out,
// by plain loops. The same calls run on shared memory and on GPUs.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "collective/all_reduce/add_norm_quant.h"
#include "collective/all_reduce/rank_order_sum.h"
#include "collective/communicator.h"
#include "device/reference/reference_device.h"

namespace coprime::testing {

// Memory of the rank's device: bytes go there and come back.
class RankMemory {
 public:
  virtual ~RankMemory() = default;
  virtual std::byte* put(const std::vector<std::byte>& bytes) = 0;  // valid until clear()
  virtual void put_into(std::byte* place, const std::vector<std::byte>& bytes) = 0;
  virtual std::vector<std::byte> get(const std::byte* place, size_t bytes) = 0;
  virtual void clear() = 0;
};

class HostMemory final : public RankMemory {
 public:
  std::byte* put(const std::vector<std::byte>& bytes) override { return blocks_.emplace_back(bytes).data(); }
  void put_into(std::byte* place, const std::vector<std::byte>& bytes) override {
    std::memcpy(place, bytes.data(), bytes.size());
  }
  std::vector<std::byte> get(const std::byte* place, size_t bytes) override { return {place, place + bytes}; }
  void clear() override { blocks_.clear(); }

 private:
  std::vector<std::vector<std::byte>> blocks_;
};

class MixedGates {
 public:
  static constexpr int kColumns = 256, kMaxRows = 400;
  static constexpr float kEps = 1e-6f;

  explicit MixedGates(int ranks) : ranks_(ranks) {
    for (int entry = 0; entry < 16; ++entry) {
      const DType type = entry % 2 == 0 ? DType::kF32 : DType::kBF16;
      schedule_.push_back({entry == 0 ? GateKind::kEmbedding : GateKind::kFfn, entry - 1, kColumns * dtype_bytes(type),
                           kMaxRows, type});
    }
  }
  const GateSchedule& schedule() const { return schedule_; }

  // The results of one gate, one after the other: residual, norm, codes, scales.
  std::vector<std::byte> run(Communicator& communicator, RankMemory& memory, int entry, int rows) const {
    memory.clear();
    const DType type = type_of(entry);
    const TypedView slot = communicator.typed_slot(entry, rows);
    memory.put_into(slot.data, vector(entry, rows, communicator.rank()));
    const size_t count = static_cast<size_t>(rows) * kColumns, bytes = count * static_cast<size_t>(dtype_bytes(type));
    Epilogue epilogue{.residual = {memory.put(residual(entry, rows)), type, rows, kColumns}, .eps = kEps};
    epilogue.normed = {memory.put(std::vector<std::byte>(bytes)), type, rows, kColumns};
    const auto weight = weights();
    if (has_norm(entry)) epilogue.norm_weight = reinterpret_cast<const float*>(memory.put(weight));
    if (has_codes(entry)) {
      epilogue.one_plus = entry % 4 == 1;
      epilogue.codes = reinterpret_cast<uint8_t*>(memory.put(std::vector<std::byte>(count)));
      epilogue.scales = reinterpret_cast<float*>(memory.put(std::vector<std::byte>(static_cast<size_t>(rows) * 4)));
    }
    communicator.reduce(entry, rows, epilogue);
    std::vector<std::byte> out = memory.get(epilogue.residual.data, bytes);
    const auto append = [&](const void* place, size_t size) {
      const auto part = memory.get(static_cast<const std::byte*>(place), size);
      out.insert(out.end(), part.begin(), part.end());
    };
    append(epilogue.normed.data, bytes);
    if (has_codes(entry)) {
      append(epilogue.codes, count);
      append(epilogue.scales, static_cast<size_t>(rows) * 4);
    }
    return out;
  }

  std::vector<std::byte> expected(int entry, int rows) const {
    const DType type = type_of(entry);
    std::vector<std::vector<std::byte>> vectors;
    for (int rank = 0; rank < ranks_; ++rank) vectors.push_back(vector(entry, rows, rank));
    const int64_t count = int64_t{rows} * kColumns;
    std::vector<std::byte> sums = vectors[0], left = residual(entry, rows), normed(sums.size());
    std::vector<const std::byte*> terms;
    for (const auto& v : vectors) terms.push_back(v.data());
    if (ranks_ > 1) sum_in_rank_order(type, terms, 0, count, sums.data());
    const auto weight_bytes = weights();
    const auto* const weight = reinterpret_cast<const float*>(weight_bytes.data());
    std::vector<std::byte> codes(static_cast<size_t>(count)), scales(static_cast<size_t>(rows) * 4);
    if (type == DType::kF32) {
      for (int64_t i = 0; i < count; ++i)
        store_element(type, load_element(type, left.data(), i) + load_element(type, sums.data(), i), left.data(), i);
      const auto view = [&](std::vector<std::byte>& v) {
        return make_view(reinterpret_cast<float*>(v.data()), rows, kColumns);
      };
      if (has_norm(entry)) make_reference_device()->rms_norm(view(left), weight, kEps, view(normed));
    } else {
      std::vector<float> scratch(kColumns);
      for (int64_t row = 0; row < rows; ++row) {
        const auto halves = [&](auto& bytes) {
          return std::span(reinterpret_cast<uint16_t*>(bytes.data()) + row * kColumns, kColumns);
        };
        const std::span<const float> gamma = has_norm(entry) ? std::span(weight, kColumns) : std::span<const float>();
        add_norm_quant_row(
            halves(sums), {gamma, kEps, has_codes(entry) && entry % 4 == 1}, halves(left), halves(normed),
            has_codes(entry) ? std::span(reinterpret_cast<uint8_t*>(codes.data()) + row * kColumns, kColumns)
                             : std::span<uint8_t>(),
            reinterpret_cast<float*>(scales.data())[row], scratch);
      }
    }
    left.insert(left.end(), normed.begin(), normed.end());
    if (has_codes(entry)) {
      left.insert(left.end(), codes.begin(), codes.end());
      left.insert(left.end(), scales.begin(), scales.end());
    }
    return left;
  }

 private:
  DType type_of(int entry) const { return schedule_[static_cast<size_t>(entry)].type; }
  bool has_norm(int entry) const { return entry < 14; }
  bool has_codes(int entry) const { return type_of(entry) == DType::kBF16 && has_norm(entry) && entry % 3 != 0; }

  static std::vector<std::byte> numbers(DType type, int64_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes(static_cast<size_t>(count * dtype_bytes(type)));
    for (int64_t i = 0; i < count; ++i) {  // wide enough that the order of additions shows
      const auto mantissa = static_cast<float>(static_cast<int32_t>(random()));
      store_element(type, std::ldexp(mantissa, -31 - static_cast<int>(random() % 12)), bytes.data(), i);
    }
    return bytes;
  }
  std::vector<std::byte> vector(int entry, int rows, int rank) const {
    return numbers(type_of(entry), int64_t{rows} * kColumns, static_cast<uint32_t>(entry * 1000 + rows * 17 + rank));
  }
  std::vector<std::byte> residual(int entry, int rows) const {
    return numbers(type_of(entry), int64_t{rows} * kColumns, static_cast<uint32_t>(entry * 1000 + rows * 17 + 500));
  }
  static std::vector<std::byte> weights() { return numbers(DType::kF32, kColumns, 99); }

  int ranks_;
  GateSchedule schedule_;
};

}  // namespace coprime::testing
