#include "tools/shard_weights.h"

#include "device/packing.h"
#include "model/weights.h"

namespace coprime {
namespace {

class Scale {
 public:
  explicit Scale(bool tied_head) : tied_head_(tied_head) {}

  void add(TensorId id, DType type, int64_t rows, int64_t columns) {
    const int64_t bytes = weight_use(id) == WeightUse::kLinear ? tiles_of(rows) * tile_bytes(type, columns)
                                                               : rows * columns * static_cast<int64_t>(sizeof(float));
    weights_.bytes += bytes;
    // The table of an untied embedding is read by rows, not by steps.
    if (id != TensorId::kEmbedding || tied_head_) weights_.step_bytes += bytes;
  }
  RankWeights weights() const { return weights_; }

 private:
  bool tied_head_;
  RankWeights weights_;
};

}  // namespace

std::vector<RankWeights> weigh_shards(const Checkpoint& checkpoint, const ShardPlan& plan) {
  std::vector<RankWeights> ranks;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    Scale scale(plan.shape().tied_head);
    load_shard(checkpoint, plan, rank, [&](const LocalTensor& tensor) {
      scale.add(tensor.rule->id, tensor.type, tensor.rows.extent, tensor.columns.extent);
      return nullptr;
    });
    ranks.push_back(scale.weights());
  }
  return ranks;
}

std::vector<RankWeights> weigh_shards(DType type, const ShardPlan& plan) {
  std::vector<RankWeights> ranks;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    Scale scale(plan.shape().tied_head);
    for (int layer = -1; layer < plan.shape().layers; ++layer) {
      for (const Rule& rule : plan.rules()) {
        if (plan.applies(rule, layer))
          scale.add(rule.id, type, plan.row_map(rule, rank).extent, plan.column_map(rule, rank).extent);
      }
    }
    ranks.push_back(scale.weights());
  }
  return ranks;
}

}  // namespace coprime
