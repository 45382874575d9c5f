#include "gate/slot_schedule.h"

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int kWordBits = 64;

int bits_of(const SlotSchedule::Mask& mask) {
  int bits = 0;
  for (const uint64_t word : mask) bits += std::popcount(word);
  return bits;
}

int highest_bit(const SlotSchedule::Mask& mask) {
  for (int word = static_cast<int>(mask.size()) - 1; word >= 0; --word) {
    const uint64_t bits = mask[static_cast<size_t>(word)];
    if (bits != 0) return word * kWordBits + kWordBits - 1 - std::countl_zero(bits);
  }
  return -1;
}

void check_layers(int layers) {
  if (layers < 1) fail(ErrorKind::kModel, "a gate schedule of {} layers: at least one is needed", layers);
}

}  // namespace

SlotSchedule SlotSchedule::strided(int layers, int start, int step, int gates_per_token) {
  check_layers(layers);
  if (start < 0 || step < 1 || gates_per_token < 1 ||
      start + (int64_t{gates_per_token} - 1) * step >= 2 * int64_t{layers}) {
    fail(ErrorKind::kModel,
         "a gate schedule of {} gates from slot {} in steps of {} does not fit {} layers of two slots", gates_per_token,
         start, step, layers);
  }
  SlotSchedule schedule(layers, gates_per_token);
  schedule.start_ = start;
  schedule.step_ = step;
  return schedule;
}

SlotSchedule SlotSchedule::masked(int layers, const Mask& mask, int gates_per_token) {
  check_layers(layers);
  const int bits = bits_of(mask);
  if (bits == 0 || bits != gates_per_token) {
    fail(ErrorKind::kModel, "a gate mask of {} slots where a token has {} gates: both must be the same, and not 0",
         bits, gates_per_token);
  }
  if (highest_bit(mask) >= 2 * layers) {
    fail(ErrorKind::kModel, "a gate mask with slot {}: {} layers have slots 0 to {}", highest_bit(mask), layers,
         2 * layers - 1);
  }
  SlotSchedule schedule(layers, gates_per_token);
  schedule.mask_ = mask;
  return schedule;
}

int SlotSchedule::slot(uint64_t sequence) const {
  COPRIME_CHECK(sequence >= 1, "sequence numbers start at 1");
  auto ordinal = static_cast<int>((sequence - 1) % static_cast<uint64_t>(gates_));
  if (mask_ == Mask{}) return start_ + ordinal * step_;
  for (size_t word = 0; word < mask_.size(); ++word) {
    uint64_t bits = mask_[word];
    const int count = std::popcount(bits);
    if (ordinal >= count) {
      ordinal -= count;
      continue;
    }
    for (; ordinal > 0; --ordinal) bits &= bits - 1;
    return static_cast<int>(word) * kWordBits + std::countr_zero(bits);
  }
  COPRIME_CHECK(false, "a mask with fewer bits than gates");
  return -1;
}

void SlotSchedule::check(int layer, int gate, uint64_t sequence) const {
  if (slot(sequence) != slot_of(layer, gate))
    fail(ErrorKind::kInternal, "gate order broke: layer {} gate {} vs seq {}", layer, gate, sequence);
}

GateSchedule SlotSchedule::entries(int64_t row_bytes, int max_rows) const {
  GateSchedule schedule;
  for (int i = 0; i < gates_; ++i) {
    const int at = slot(static_cast<uint64_t>(i) + 1);
    schedule.push_back({at % 2 == 0 ? GateKind::kAttention : GateKind::kFfn, at / 2, row_bytes, max_rows});
  }
  return schedule;
}

SlotSchedule deepseek_v4_flash_slots() { return SlotSchedule::all(43); }
SlotSchedule deepseek_v4_pro_slots() { return SlotSchedule::all(61); }

SlotSchedule glm_5_2_slots(int layers, int dense_layers, int mtp_layers) {
  return SlotSchedule::strided(layers, 2 * dense_layers + 1, 2, layers - mtp_layers - dense_layers);
}

SlotSchedule glm_5_3_slots(int layers, const std::array<uint64_t, 2>& sparse) {
  check_layers(layers);
  if (2 * layers > static_cast<int>(3 * kWordBits))
    fail(ErrorKind::kModel, "a gate mask of {} layers: it has room for {}", layers, 3 * kWordBits / 2);
  SlotSchedule::Mask mask = {};
  const auto set = [&](int slot) { mask[static_cast<size_t>(slot / kWordBits)] |= uint64_t{1} << (slot % kWordBits); };
  for (int layer = 0; layer < layers; ++layer) {
    if ((sparse[static_cast<size_t>(layer / kWordBits)] >> (layer % kWordBits) & 1) != 0)
      set(SlotSchedule::slot_of(layer, 0));
    set(SlotSchedule::slot_of(layer, 1));
  }
  return SlotSchedule::masked(layers, mask, bits_of(mask));
}

}  // namespace coprime
