// One rank's packed weights, by layer and role.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "device/device.h"

namespace coprime {

class WeightSet {
 public:
  Weight& operator[](TensorId id) { return weights_[static_cast<size_t>(id)]; }
  const Weight& operator[](TensorId id) const { return weights_[static_cast<size_t>(id)]; }

 private:
  std::array<Weight, static_cast<size_t>(TensorId::kOut) + 1> weights_;
};

struct ModelWeights {
  WeightSet model;  // kEmbedding, kFinalNorm, kHead (empty where it is tied)
  std::vector<WeightSet> layers;
  int64_t bytes = 0;       // of all components
  int64_t step_bytes = 0;  // of them those that every step reads: not the table of an embedding that is no head
  Tally tally;
};

// What the device packs a rule's tensors for.
WeightUse weight_use(TensorId id);

// Puts something between the checkpoint and the device: a test that poisons the fill, a progress counter.
using SinkFilter = std::function<std::unique_ptr<WeightSink>(const LocalTensor&, std::unique_ptr<WeightSink>)>;

// Reads and packs `rank`'s shard. Error(kModel) as load_shard.
ModelWeights load_weights(const Checkpoint& checkpoint, const ShardPlan& plan, int rank, Device& device,
                          const SinkFilter& filter = {});

}  // namespace coprime
