#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/scalar_math.h"

namespace coprime {
namespace {

bool is_plus_one(const ModelShape& shape, TensorId id) {
  if (!shape.norm_plus_one) return false;
  return id == TensorId::kInputNorm || id == TensorId::kPostNorm || id == TensorId::kFinalNorm ||
         id == TensorId::kQNorm || id == TensorId::kKNorm;
}

// Turns -exp(A_log), as GGUF has it, back to A_log. Fill is A_log's own.
class DecaySink final : public WeightSink {
 public:
  DecaySink(const LocalTensor& tensor, std::unique_ptr<WeightSink> next)
      : name_(tensor.name), real_(tensor.rows.real), next_(std::move(next)) {
    if (tensor.type != DType::kF32)
      fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: F32", name_, dtype_name(tensor.type));
  }
  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < values.size(); ++i) {
      float& value = values[i];
      if (!is_real(first + static_cast<int64_t>(i))) continue;
      if (!(value < 0 && value > -INFINITY))
        fail(ErrorKind::kModel, "{} holds {}; expected numbers below 0", name_, value);
      value = static_cast<float>(portable_log(-static_cast<double>(value)));
    }
    next_->rows(first, count, std::as_bytes(std::span(values)));
  }

 private:
  bool is_real(int64_t row) const {
    return std::ranges::any_of(real_, [row](const Span& s) { return row >= s.local && row < s.local + s.count; });
  }

  std::string name_;
  std::vector<Span> real_;
  std::unique_ptr<WeightSink> next_;
};

// A bias becomes a component of its matrix: linear() adds it.
void attach_bias(WeightSet& layer, TensorId matrix, TensorId bias) {
  if (layer[bias].components.empty()) return;
  Component component = std::move(layer[bias].components[0]);
  component.role = ComponentRole::kBias;
  layer[matrix].components.push_back(std::move(component));
  layer[bias].components.clear();
}

}  // namespace

WeightUse weight_use(TensorId id) {
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
    weight.inputs = tensor.inputs;
    auto sink = device.pack(weight, tensor.type, weight_use(id), is_plus_one(plan.shape(), id) ? 1.0f : 0.0f);
    if (id == TensorId::kALog && plan.shape().negative_decay)
      sink = std::make_unique<DecaySink>(tensor, std::move(sink));
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
