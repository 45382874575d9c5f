// The decoder of Llama, Qwen2, Qwen3 and Qwen3.5 on one rank: the same code on every rank, over its shard. Owns the
// weights, the cache and the activations; allocates nothing in a step of at most `max_rows` rows.
//
//   h = embedding[id]
//   per layer:  h += o_proj(attention(norm(h)))      or, linear:  h += out_proj(gated_norm(delta_rule(conv(norm(h)))))
//               h += down_proj(silu(gate) * up)
//   logits = head(norm(h))
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "collective/communicator.h"
#include "model/gates.h"
#include "model/step_batch.h"
#include "model/weights.h"
#include "state/cache.h"

namespace coprime {

struct DecoderOptions {
  int max_rows = 1;  // of one step
  int pages = 0, slots = 0, sequences = 1;
  DType kv_type = DType::kF32;
};

// What a rank's cache consists of.
CacheShape cache_shape(const ShardPlan& plan, int rank, const DecoderOptions& options);

class Decoder {
 public:
  // The references must outlive it.
  Decoder(const ShardPlan& plan, int rank, Device& device, Communicator& communicator, ModelWeights weights,
          const DecoderOptions& options);
  ~Decoder();

  // Runs a step and fills `result`'s rows. Error(kInternal) for a step outside the pools, Error(kLink) from a gate.
  void step(const StepBatch& batch, StepResult& result);

  // Drops the page lists of all sequences: what a step that failed has left is used by nobody.
  void forget_sequences() { cache_.forget_sequences(); }

  const ModelWeights& weights() const { return weights_; }
  const Cache& cache() const { return cache_; }

 private:
  struct Activations;
  void prepare(const StepBatch& batch);
  void embed(const StepBatch& batch);
  void attention(int layer, int attention_layer);
  void delta_net(int layer, int linear_layer);
  void mlp(int layer);
  void logits(const StepBatch& batch, StepResult& result);
  void fill_rope(const StepBatch& batch);
  Epilogue epilogue(const Weight& norm) const;
  const Weight& head() const;

  const ShardPlan& plan_;
  const ModelShape& shape_;
  const int rank_;
  Device& device_;
  Communicator& communicator_;
  ModelWeights weights_;
  Cache cache_;
  Counts local_;
  DeltaNetShape linear_;
  std::vector<OutputProjection> attention_outputs_, mlp_outputs_;
  std::vector<float> frequencies_;
  int max_rows_;

  std::unique_ptr<Activations> activations_;
  std::vector<SequenceSpan> spans_;  // of the step that runs
  int64_t rows_ = 0;
};

}  // namespace coprime
