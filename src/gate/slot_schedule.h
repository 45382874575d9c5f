// Which slot a gate's sequence number has: ds4's slots, two a layer (ATTN and FFN), of which a model fires all, every
// so many from a first one, or those of a bit mask. Pure.
//
// Sequence numbers start at 1 and go on from token to token: the gates of a token repeat.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "gate/schedule.h"

namespace coprime {

class SlotSchedule {
 public:
  using Mask = std::array<uint64_t, 3>;

  // Error(kModel) for slots beyond the layers, and for a mask whose bits are not gates_per_token.
  static SlotSchedule all(int layers) { return strided(layers, 0, 1, 2 * layers); }
  static SlotSchedule strided(int layers, int start, int step, int gates_per_token);
  static SlotSchedule masked(int layers, const Mask& mask, int gates_per_token);

  static constexpr int slot_of(int layer, int gate) { return 2 * layer + gate; }  // gate: 0 ATTN, 1 FFN

  int layers() const { return layers_; }
  int gates_per_token() const { return gates_; }
  int slot(uint64_t sequence) const;  // sequence >= 1

  // Error(kInternal) "gate order broke: layer L gate G vs seq S" if the sequence has another slot.
  void check(int layer, int gate, uint64_t sequence) const;

  // The same as a program's entries, each of rows of so many bytes.
  GateSchedule entries(int64_t row_bytes, int max_rows) const;

 private:
  SlotSchedule(int layers, int gates) : layers_(layers), gates_(gates) {}

  int layers_, gates_;
  int start_ = 0, step_ = 1;
  Mask mask_ = {};  // all zero: start and step
};

// The schedules of models that ds4 runs.
SlotSchedule deepseek_v4_flash_slots();  // 43 layers, all gates
SlotSchedule deepseek_v4_pro_slots();    // 61 layers, all gates
// FFN only, from the first sparse layer; the dense layers in front and the layers of the MTP head fire nothing.
SlotSchedule glm_5_2_slots(int layers, int dense_layers, int mtp_layers);
// Sparse-attention layers fire ATTN and FFN, KDA layers FFN only. `sparse`: a bit a layer.
SlotSchedule glm_5_3_slots(int layers, const std::array<uint64_t, 2>& sparse);

}  // namespace coprime
