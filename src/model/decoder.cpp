#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/scalar_math.h"

namespace coprime {
namespace {

constexpr int64_t kLogitsRows = 32;  // rows of logits computed at a time

DeltaNetShape local_delta_net(const ModelShape& shape, const Counts& local) {
  return {local.linear_key_heads, local.linear_value_heads, shape.linear.key_dim, shape.linear.value_dim,
          shape.linear.conv_taps};
}

HeadsView heads(View matrix, int count, int stride, int dim, int offset = 0) {
  return {matrix.data + offset, matrix.rows, matrix.stride, count, stride, dim};
}

}  // namespace

CacheShape cache_shape(const ShardPlan& plan, int rank, const DecoderOptions& options) {
  const ModelShape& shape = plan.shape();
  const Counts local = plan.local(rank);
  const auto linear_layers = static_cast<int>(std::ranges::count(shape.layer_kinds, LayerKind::kLinearAttention));
  return {.attention_layers = shape.layers - linear_layers,
          .kv_heads = local.kv_heads,
          .head_dim = shape.head_dim,
          .kv_type = options.kv_type,
          .pages = options.pages,
          .linear_layers = linear_layers,
          .linear = local_delta_net(shape, local),
          .slots = options.slots,
          .sequences = options.sequences};
}

// A step's matrices. Rows are allotted for max_rows; take() views the first `rows` of a matrix.
struct Decoder::Activations {
  struct Matrix {
    Buffer bytes;
    int64_t columns = 0;
    Matrix(int64_t rows, int64_t cols) : bytes(static_cast<size_t>(rows * cols) * sizeof(float)), columns(cols) {}
    View take(int64_t rows) const { return make_view(bytes.as<float>(), rows, columns); }
  };

  Activations(const ModelShape& shape, const Counts& local, const DeltaNetShape& linear, int64_t rows,
              int64_t head_rows)
      : residual(rows, shape.hidden),
        normed(rows, shape.hidden),
        sum(rows, shape.hidden),
        query(rows, int64_t{local.q_heads} * shape.q_rows_per_head()),
        key(rows, int64_t{local.kv_heads} * shape.head_dim),
        value(rows, int64_t{local.kv_heads} * shape.head_dim),
        convolution_in(rows, linear.channels()),
        convolution_out(rows, linear.channels()),
        z(rows, int64_t{linear.value_heads} * linear.value_dim),
        b(rows, linear.value_heads),
        a(rows, linear.value_heads),
        up(rows, local.intermediate),
        projection_in(rows, std::max({int64_t{local.q_heads} * shape.head_dim,
                                      int64_t{linear.value_heads} * linear.value_dim, local.intermediate})),
        gathered(rows, std::max({int64_t{shape.q_heads} * shape.head_dim,
                                 int64_t{shape.linear.value_heads} * shape.linear.value_dim, shape.intermediate})),
        cosines(rows, shape.rope.rotary_dim / 2),
        sines(rows, shape.rope.rotary_dim / 2),
        logits(std::min(rows, kLogitsRows), head_rows) {}

  Matrix residual, normed, sum;
  Matrix query, key, value;
  Matrix convolution_in, convolution_out, z, b, a;
  Matrix up, projection_in, gathered;
  Matrix cosines, sines;
  Matrix logits;
};

Decoder::Decoder(const ShardPlan& plan, int rank, Device& device, Communicator& communicator, ModelWeights weights,
                 const DecoderOptions& options)
    : plan_(plan),
      shape_(plan.shape()),
      rank_(rank),
      device_(device),
      communicator_(communicator),
      weights_(std::move(weights)),
      cache_(cache_shape(plan, rank, options)),
      local_(plan.local(rank)),
      linear_(local_delta_net(plan.shape(), local_)),
      frequencies_(rope_frequencies(plan.shape().rope)),
      max_rows_(options.max_rows),
      activations_(std::make_unique<Activations>(shape_, local_, linear_, options.max_rows, head().rows)) {
  const auto query_parts = gather_parts(plan, &ShardPlan::query_elements);
  const auto value_parts = gather_parts(plan, &ShardPlan::linear_value_elements);
  const auto mlp_parts = gather_parts(plan, &ShardPlan::intermediate_elements);
  for (int layer = 0; layer < shape_.layers; ++layer) {
    const bool full = shape_.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kFullAttention;
    attention_outputs_.emplace_back(plan, true, layer, full ? query_parts : value_parts);
    mlp_outputs_.emplace_back(plan, false, layer, mlp_parts);
  }
  spans_.reserve(static_cast<size_t>(options.sequences));
}

Decoder::~Decoder() = default;

void Decoder::step(const StepBatch& batch, StepResult& result) {
  prepare(batch);
  communicator_.begin_step(static_cast<int>(rows_), batch.next_rows);
  embed(batch);
  int attention_layer = 0, linear_layer = 0;
  for (int layer = 0; layer < shape_.layers; ++layer) {
    if (shape_.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kFullAttention) {
      attention(layer, attention_layer++);
    } else {
      delta_net(layer, linear_layer++);
    }
    mlp(layer);
  }
  logits(batch, result);
}

void Decoder::prepare(const StepBatch& batch) {
  rows_ = batch.rows();
  if (rows_ < 1 || rows_ > max_rows_) fail(ErrorKind::kInternal, "a step of {} rows, at most {} fit", rows_, max_rows_);
  for (int32_t id : batch.ids) {
    if (id < 0 || id >= shape_.vocab)
      fail(ErrorKind::kUsage, "token id {} is outside the vocabulary of {}", id, shape_.vocab);
  }
  for (int32_t sequence : batch.cancelled) cache_.set_pages(sequence, 0, {});
  spans_.clear();
  int64_t first_row = 0;
  for (const SequenceRows& rows : batch.sequences) {
    cache_.set_pages(rows.sequence, rows.pages.first, rows.pages.pages);
    cache_.check_slot(rows.state_in);
    cache_.check_slot(rows.state_out);
    spans_.push_back({first_row, rows.rows, rows.start, {}, rows.state_in, rows.state_out});
    first_row += rows.rows;
  }
  for (size_t i = 0; i < spans_.size(); ++i) {  // only now: lists may move while they grow
    const SequenceRows& rows = batch.sequences[i];
    spans_[i].pages = cache_.pages(rows.sequence, rows.start + rows.rows);
  }
  fill_rope(batch);
}

// The angle is a product of floats, as transformers forms it.
void Decoder::fill_rope(const StepBatch& batch) {
  const View cosines = activations_->cosines.take(rows_), sines = activations_->sines.take(rows_);
  int64_t row = 0;
  for (const SequenceRows& rows : batch.sequences) {
    for (int64_t i = 0; i < rows.rows; ++i, ++row) {
      for (size_t f = 0; f < frequencies_.size(); ++f) {
        const float angle = frequencies_[f] * static_cast<float>(rows.start + i);
        double sine, cosine;
        portable_sincos(angle, &sine, &cosine);
        cosines.row(row)[f] = static_cast<float>(cosine);
        sines.row(row)[f] = static_cast<float>(sine);
      }
    }
  }
}

Epilogue Decoder::epilogue(const Weight& norm) const {
  return {activations_->residual.take(rows_), norm.vector(), shape_.rms_eps, activations_->normed.take(rows_)};
}

void Decoder::embed(const StepBatch& batch) {
  const View residual = activations_->residual.take(rows_);
  device_.zero(residual);
  const View slot = communicator_.slot(0, static_cast<int>(rows_));
  device_.embed(weights_.model[TensorId::kEmbedding], batch.ids, plan_.vocab_rows(rank_).global, slot);
  communicator_.reduce(0, static_cast<int>(rows_), epilogue(weights_.layers[0][TensorId::kInputNorm]));
}

void Decoder::attention(int layer, int attention_layer) {
  const WeightSet& weights = weights_.layers[static_cast<size_t>(layer)];
  const OutputProjection& projection = attention_outputs_[static_cast<size_t>(layer)];
  const int dim = shape_.head_dim, query_stride = shape_.q_rows_per_head();
  const View out = projection.input(communicator_, activations_->projection_in.take(rows_), static_cast<int>(rows_),
                                    int64_t{local_.q_heads} * dim);

  if (local_.q_heads > 0) {
    const View normed = activations_->normed.take(rows_);
    const View query = activations_->query.take(rows_), key = activations_->key.take(rows_),
               value = activations_->value.take(rows_);
    const std::array tasks{LinearTask{&weights[TensorId::kQ], query}, LinearTask{&weights[TensorId::kK], key},
                           LinearTask{&weights[TensorId::kV], value}};
    device_.linear(normed, tasks);

    const HeadsView q = heads(query, local_.q_heads, query_stride, dim);
    const HeadsView k = heads(key, local_.kv_heads, dim, dim), v = heads(value, local_.kv_heads, dim, dim);
    const View cosines = activations_->cosines.take(rows_), sines = activations_->sines.take(rows_);
    const float* q_norm = shape_.qk_norm ? weights[TensorId::kQNorm].vector() : nullptr;
    const float* k_norm = shape_.qk_norm ? weights[TensorId::kKNorm].vector() : nullptr;
    device_.norm_rope(q, q_norm, shape_.rms_eps, cosines, sines);
    device_.norm_rope(k, k_norm, shape_.rms_eps, cosines, sines);

    const KvView kv = cache_.kv(attention_layer);
    device_.store_kv(kv, spans_, k, v);
    device_.attend(kv, spans_, q, 1.0f / std::sqrt(static_cast<float>(dim)), out);
    if (shape_.gated_attention) device_.sigmoid_gate(out, heads(query, local_.q_heads, query_stride, dim, dim));
  }
  projection.run(device_, communicator_, weights[TensorId::kO], out, activations_->gathered.take(rows_),
                 activations_->sum.take(rows_), epilogue(weights[TensorId::kPostNorm]));
}

void Decoder::delta_net(int layer, int linear_layer) {
  const WeightSet& weights = weights_.layers[static_cast<size_t>(layer)];
  const OutputProjection& projection = attention_outputs_[static_cast<size_t>(layer)];
  const int64_t columns = int64_t{linear_.value_heads} * linear_.value_dim;
  const View out =
      projection.input(communicator_, activations_->projection_in.take(rows_), static_cast<int>(rows_), columns);

  if (linear_.value_heads > 0) {
    const View normed = activations_->normed.take(rows_), u = activations_->convolution_in.take(rows_);
    const View qkv = activations_->convolution_out.take(rows_), z = activations_->z.take(rows_);
    const View b = activations_->b.take(rows_), a = activations_->a.take(rows_);
    const std::array tasks{LinearTask{&weights[TensorId::kInQkv], u}, LinearTask{&weights[TensorId::kInZ], z},
                           LinearTask{&weights[TensorId::kInB], b}, LinearTask{&weights[TensorId::kInA], a}};
    device_.linear(normed, tasks);

    const StateView state = cache_.state(linear_layer);
    device_.short_convolution(state, linear_, spans_, weights[TensorId::kConv].vector(), u, qkv);
    const DeltaNetForm form = plan_.options().exact ? DeltaNetForm::kRecurrent : DeltaNetForm::kChunked;
    device_.delta_rule(state, linear_, spans_, qkv, b, a, weights[TensorId::kALog].vector(),
                       weights[TensorId::kDtBias].vector(), form, out);
    device_.gated_norm(out, z, linear_.value_dim, weights[TensorId::kLinearNorm].vector(), shape_.rms_eps);
  }
  projection.run(device_, communicator_, weights[TensorId::kOut], out, activations_->gathered.take(rows_),
                 activations_->sum.take(rows_), epilogue(weights[TensorId::kPostNorm]));
}

void Decoder::mlp(int layer) {
  const WeightSet& weights = weights_.layers[static_cast<size_t>(layer)];
  const OutputProjection& projection = mlp_outputs_[static_cast<size_t>(layer)];
  const View gate = projection.input(communicator_, activations_->projection_in.take(rows_), static_cast<int>(rows_),
                                     local_.intermediate);
  if (local_.intermediate > 0) {
    const View up = activations_->up.take(rows_);
    const std::array tasks{LinearTask{&weights[TensorId::kGate], gate}, LinearTask{&weights[TensorId::kUp], up}};
    device_.linear(activations_->normed.take(rows_), tasks);
    device_.swiglu(gate, up);
  }
  const auto next = static_cast<size_t>(layer) + 1;
  const Weight& norm = next < weights_.layers.size() ? weights_.layers[next][TensorId::kInputNorm]
                                                     : weights_.model[TensorId::kFinalNorm];
  projection.run(device_, communicator_, weights[TensorId::kDown], gate, activations_->gathered.take(rows_),
                 activations_->sum.take(rows_), epilogue(norm));
}

const Weight& Decoder::head() const {
  return weights_.model[shape_.tied_head ? TensorId::kEmbedding : TensorId::kHead];
}

// Rows past the real vocabulary are cut before any maximum. Requested rows that follow each other are computed
// together.
void Decoder::logits(const StepBatch& batch, StepResult& result) {
  const Span vocab = plan_.vocab_rows(rank_);
  const View normed = activations_->normed.take(rows_);
  size_t requests = 0;
  for (const SequenceRows& rows : batch.sequences) requests += rows.logits.size();
  result.rows.resize(requests);

  size_t request = 0;
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const auto& wanted = batch.sequences[s].logits;
    for (size_t i = 0; i < wanted.size();) {
      size_t run = 1;
      while (i + run < wanted.size() && run < kLogitsRows &&
             wanted[i + run].row == wanted[i].row + static_cast<int32_t>(run))
        ++run;
      const View out = make_view(activations_->logits.take(1).data, static_cast<int64_t>(run), head().rows);
      const LinearTask task{&head(), out};
      device_.linear(normed.row_range(spans_[s].first_row + wanted[i].row, static_cast<int64_t>(run)), {&task, 1});
      for (size_t r = 0; r < run; ++r, ++request) {
        const std::span<const float> row(out.row(static_cast<int64_t>(r)), static_cast<size_t>(vocab.count));
        ShardLogits& shard = result.rows[request];
        shard.best.resize(std::min<size_t>(static_cast<size_t>(wanted[i + r].top_k), row.size()));
        shard.best.resize(static_cast<size_t>(device_.top_k(row, static_cast<int32_t>(vocab.global), shard.best)));
        shard.all.assign(row.begin(), wanted[i + r].top_k == 0 ? row.end() : row.begin());
      }
      i += run;
    }
  }
}

}  // namespace coprime
