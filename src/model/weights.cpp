#include "model/weights.h"

namespace coprime {
namespace {

WeightUse use_of(TensorId id) {
  switch (id) {
    case TensorId::kEmbedding:
    case TensorId::kHead:
    case TensorId::kQ:
    case TensorId::kK:
    case TensorId::kV:
    case TensorId::kO:
    case TensorId::kGate:
    case TensorId::kUp:
    case TensorId::kDown:
    case TensorId::kInQkv:
    case TensorId::kInZ:
    case TensorId::kInB:
    case TensorId::kInA:
    case TensorId::kOut:
      return WeightUse::kLinear;
    default:
      return WeightUse::kVector;
  }
}

bool is_plus_one(const ModelShape& shape, TensorId id) {
  if (!shape.norm_plus_one) return false;
  return id == TensorId::kInputNorm || id == TensorId::kPostNorm || id == TensorId::kFinalNorm ||
         id == TensorId::kQNorm || id == TensorId::kKNorm;
}

// A bias becomes a component of its matrix: linear() adds it.
void attach_bias(WeightSet& layer, TensorId matrix, TensorId bias) {
  if (layer[bias].components.empty()) return;
  Component component = std::move(layer[bias].components[0]);
  component.role = ComponentRole::kBias;
  layer[matrix].components.push_back(std::move(component));
  layer[bias].components.clear();
}

}  // namespace

ModelWeights load_weights(const Checkpoint& checkpoint, const ShardPlan& plan, int rank, Device& device,
                          const SinkFilter& filter) {
  ModelWeights weights;
  weights.layers.resize(static_cast<size_t>(plan.shape().layers));
  weights.tally = load_shard(checkpoint, plan, rank, [&](const LocalTensor& tensor) {
    const TensorId id = tensor.rule->id;
    Weight& weight = tensor.layer < 0 ? weights.model[id] : weights.layers[static_cast<size_t>(tensor.layer)][id];
    weight.name = tensor.name;
    weight.rows = tensor.rows.extent;
    weight.columns = tensor.columns.extent;
    auto sink = device.pack(weight, tensor.type, use_of(id), is_plus_one(plan.shape(), id) ? 1.0f : 0.0f);
    return filter ? filter(tensor, std::move(sink)) : std::move(sink);
  });

  for (WeightSet& layer : weights.layers) {
    attach_bias(layer, TensorId::kQ, TensorId::kQBias);
    attach_bias(layer, TensorId::kK, TensorId::kKBias);
    attach_bias(layer, TensorId::kV, TensorId::kVBias);
  }
  const auto add_bytes = [&](const WeightSet& set) {
    for (size_t id = 0; id <= static_cast<size_t>(TensorId::kOut); ++id) {
      for (const Component& component : set[static_cast<TensorId>(id)].components)
        weights.bytes += static_cast<int64_t>(component.bytes.size());
    }
  };
  add_bytes(weights.model);
  for (const WeightSet& layer : weights.layers) add_bytes(layer);
  weights.step_bytes = weights.bytes;
  if (!plan.shape().tied_head) {
    for (const Component& component : weights.model[TensorId::kEmbedding].components)
      weights.step_bytes -= static_cast<int64_t>(component.bytes.size());
  }
  return weights;
}

}  // namespace coprime
