// Who owns what: for every tensor of a model, which logical rows or columns each rank holds, and the fill.
//
// Pure: a plan is a function of the shape and the options. Padding is by dummies at the global end of each axis; a
// rank's share of an axis is a contiguous run of whole units, `ceil(units / ranks)` of them, so dummies fall on the
// last ranks. Where the ranks are a multiple of the KV heads and divide the query heads, each rank holds a copy of one
// KV head and an even share of its query heads instead.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "geometry/model_shape.h"

namespace coprime {

// Logical elements [global, global + count) of an axis stand at [local, local + count) of a rank's share.
struct Span {
  int64_t global = 0, local = 0, count = 0;
  bool operator==(const Span&) const = default;
};

// A rank's share of one axis: its extent, and where real elements stand in it. Gaps are fill; ranks may overlap.
struct AxisMap {
  std::vector<Span> real;  // ascending by local, disjoint
  int64_t extent = 0;
  int64_t real_count() const;
};

// The axes along which matrices are cut. An axis counts elements, cut in units: kHidden 16 rows (exact mode only),
// kQuery (rows of q_proj), kQueryOut (the attention's output) and kKv whole KV head groups, kIntermediate `mlp_unit`,
// kVocab 64 ids, kConvolution (sections q, k, v), kValueDim and kValueHeads whole groups of a key head.
enum class Axis : uint8_t {
  kHidden,
  kQuery,
  kQueryOut,
  kKv,
  kIntermediate,
  kVocab,
  kConvolution,
  kValueDim,
  kValueHeads
};

// What is done with dummies: left out of a rank's memory (the CPU's choice), or held with their fill, so that every
// rank's shapes are the same.
enum class Dummies : uint8_t { kSkipped, kHeld };

struct PlanOptions {
  int ranks = 1;
  int pad_for = 0;        // the rank count that the geometry is widened for; 0: `ranks`
  int64_t mlp_width = 0;  // padded width of the MLP; 0: by rule
  int64_t mlp_unit = 0;   // unit of the MLP's width a rank; 0: the shape's
  bool exact = false;     // projections back to the hidden size are cut by rows, their inputs gathered
  Dummies dummies = Dummies::kSkipped;
};

// Global counts, stock or padded.
struct Counts {
  int q_heads = 0, kv_heads = 0, linear_key_heads = 0, linear_value_heads = 0;
  int64_t intermediate = 0, vocab = 0;
  bool operator==(const Counts&) const = default;
};

// Which tensor of a layer (or of the model) a rule is about.
enum class TensorId : uint8_t {
  kEmbedding,
  kFinalNorm,
  kHead,
  kInputNorm,
  kPostNorm,
  kQ,
  kK,
  kV,
  kQBias,
  kKBias,
  kVBias,
  kO,
  kQNorm,
  kKNorm,
  kGate,
  kUp,
  kDown,
  kInQkv,
  kInZ,
  kInB,
  kInA,
  kConv,
  kALog,
  kDtBias,
  kLinearNorm,
  kOut,
  // Of the multi-token-prediction head, which is checked and not loaded.
  kMtpFc,
  kMtpEmbeddingNorm,
  kMtpHiddenNorm,
  kMtpNorm,
};

enum class Operation : uint8_t { kRows, kColumns, kSections, kReplicate };

// Where a rule's tensors stand: once in the model, or once in each layer (of a kind).
enum class Scope : uint8_t { kModel, kEveryLayer, kFullLayers, kLinearLayers };

// The order that a file has an axis in.
enum class FileOrder : uint8_t {
  kModel,        // as the model counts
  kRotaryPairs,  // GGUF of llama: rows 2j and 2j + 1 of a head are the model's rows j and j + head_dim / 2
  kTiledHeads,   // GGUF of qwen35: value head i of key head k (of `n`) stands at i * n + k, not at k * ratio + i
};

// One rule: how every tensor of one name is cut. `expected` is how many the layer list predicts.
struct Rule {
  TensorId id;
  std::string suffix;  // of the model: the full name, "model.norm.weight"; of a layer: "self_attn.q_proj.weight",
                       // or "attn_q.weight"
  Scope scope;
  Operation op;
  std::optional<Axis> axis;  // none: replicated
  int expected = 0;
  std::vector<int64_t> shape;  // the stock shape that the file must have
  FileOrder row_order = FileOrder::kModel, column_order = FileOrder::kModel;
};

// The size of an axis with these counts.
int64_t axis_size(const ModelShape& shape, const Counts& counts, Axis axis);

class ShardPlan {
 public:
  // Error(kUsage) for ranks outside 1..16, pad_for likewise, an mlp_width smaller than the model's intermediate size or
  // not a multiple of mlp_unit. No other geometry is refused: a rank may hold nothing of an axis.
  ShardPlan(ModelShape shape, PlanOptions options);

  const ModelShape& shape() const { return shape_; }
  const PlanOptions& options() const { return options_; }
  int ranks() const { return options_.ranks; }
  Counts stock() const;
  Counts padded() const { return padded_; }
  // Are there more ranks than KV heads, so that several ranks hold each?
  bool kv_replicated() const { return kv_copies_ > 1; }
  int kv_copies() const { return kv_copies_; }

  std::span<const Rule> rules() const { return rules_; }
  // Has layer `layer` the rule's tensor? Its full name ("model.layers.3.self_attn.q_proj.weight",
  // "blk.3.attn_q.weight"; layer -1: of the model).
  bool applies(const Rule& rule, int layer) const;
  std::string tensor_name(const Rule& rule, int layer) const;

  // What `rank` holds of an axis, in elements; the axis's size over all ranks, real and padded.
  AxisMap axis_map(Axis axis, int rank) const;
  int64_t real_size(Axis axis) const;
  int64_t padded_size(Axis axis) const;

  // What `rank` holds of dim 0 and dim 1 of the rule's tensor (a vector's one axis is rows; its columns are one
  // element).
  AxisMap row_map(const Rule& rule, int rank) const;
  AxisMap column_map(const Rule& rule, int rank) const;
  // The same, where the file has them.
  AxisMap file_row_map(const Rule& rule, int rank) const;
  AxisMap file_column_map(const Rule& rule, int rank) const;

  // Local counts of heads and widths, dummies counted if they are held. Local q head h reads local KV head
  // h / (q_heads / kv_heads), also where KV heads are replicated.
  Counts local(int rank) const;
  // This rank's rows of the vocabulary, real ones: ids [first, first + count).
  Span vocab_rows(int rank) const;
  // Exact mode's rows of the hidden size: this rank's outputs of o_proj, out_proj and down_proj.
  Span hidden_rows(int rank) const;
  // Where this rank's attention output, DeltaNet output and MLP activations stand in the model's real ones, in
  // elements.
  Span query_elements(int rank) const;
  Span linear_value_elements(int rank) const;
  Span intermediate_elements(int rank) const;

  // Of everything that must agree between ranks before the first gate.
  uint64_t hash() const;

 private:
  // `count` whole units from `first` of an axis cut for `ranks()`.
  struct Share {
    int64_t first, count, held;  // held: the same on every rank, where dummies are held
  };
  Share share(int64_t units, int rank) const;
  AxisMap map_of_units(Share share, int64_t unit, int64_t real) const;
  AxisMap heads_map(int rank, int64_t elements_per_q_head) const;
  AxisMap sections_map(int rank) const;

  ModelShape shape_;
  PlanOptions options_;
  Counts padded_;
  int kv_copies_ = 1;  // ranks that hold a copy of each KV head
  std::vector<Rule> rules_;
};

}  // namespace coprime
