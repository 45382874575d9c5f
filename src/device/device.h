// The operations of a decoder on one rank's memory. Owns nothing of the model; refuses nothing but broken shapes
// (CHECK).
//
// Operations of one device take effect in call order. None allocates, locks, logs or enters the kernel, but for waking
// the device's own threads. Matrices are float, rows are the rows of a step, and every row is computed alone: a row's
// bits do not depend on the other rows, on how many there are, or on the number of threads.
//
// "Replicated" operations are computed on every rank and must give the same bits on every CPU: their order of additions
// is written at the declaration, multiplication and addition are fused only where it says so.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tensor/sequence.h"
#include "tensor/view.h"
#include "tensor/weight.h"
#include "tensor/weight_sink.h"

namespace coprime {

// How an operation adds: two kernels of one class give the same bits. Ranks compare the classes of their kernels (exact
// mode refuses ranks that differ).
enum class OrderClass : uint8_t {
  kSequentialFma,  // acc = fma(w[k], x[k], acc) for k ascending, from +0
  kPlain,          // reference/: the same order with the C library's exp
  kLanes,          // cpu/: the order that device/cpu states, with its own exp
  kIntegerBlocks,  // integer sums of 32 columns, then f32, as device/quant/quant_kernels.h states
  kBfloatPairs,    // x in parts of bf16, pairs of columns, as device/cpu/split_linear.h states
  kBfloatTiles,    // x in parts of bf16, tiles of 32 columns, likewise
  kScaledBlocks,   // sums of 128 columns as of kSequentialFma, each times its scale, as device/quant/fp8_kernels.h
                   // states
};

// What the packed form of a weight is for.
enum class WeightUse : uint8_t {
  kLinear,  // the matrix of linear(); also read by embed()
  kVector,  // norms, biases, A_log, dt_bias, convolution taps: row-major float
};

// One matrix product of a group that shares its input. y has weight->rows columns.
struct LinearTask {
  const Weight* weight = nullptr;
  View y;
};

// Heads inside the rows of a matrix: head h of row r starts at data + r * row_stride + h * head_stride.
struct HeadsView {
  float* data = nullptr;
  int64_t rows = 0, row_stride = 0;
  int heads = 0, head_stride = 0, head_dim = 0;
  float* head(int64_t row, int h) const { return data + row * row_stride + int64_t{h} * head_stride; }
};

// Gated DeltaNet's local shape. Channels of the convolution, in order: q [key_heads * key_dim], k likewise,
// v [value_heads * value_dim]. Value head j reads key head j / (value_heads / key_heads).
struct DeltaNetShape {
  int key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, taps = 0;
  int64_t channels() const { return 2 * int64_t{key_heads} * key_dim + int64_t{value_heads} * value_dim; }
};

enum class DeltaNetForm : uint8_t { kRecurrent, kChunked };

// One candidate of a logits row.
struct Candidate {
  float logit = 0;
  int32_t id = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // A sink that packs local rows as they come into `weight`, whose name, rows and columns are set. `type` is the
  // file's. kLinear keeps BF16, F16, F32 and blocks as they are; kVector widens to float (adding `offset` to every
  // value: 1 for 1+w norms).
  virtual std::unique_ptr<WeightSink> pack(Weight& weight, DType type, WeightUse use, float offset = 0) = 0;

  // out = +0. Replicated.
  virtual void zero(View out) = 0;

  // out[r] = table[ids[r] - first_id] + 0.0f, and zero where the id lies outside the table's rows (another rank's).
  // Replicated.
  virtual void embed(const Weight& table, std::span<const int32_t> ids, int64_t first_id, View out) = 0;

  // y = x W^T (+ bias) for each task. Each output is a sum over all columns in one order (linear_order()), the bias
  // added last.
  virtual void linear(View x, std::span<const LinearTask> tasks) = 0;
  virtual OrderClass linear_order() const = 0;

  // y = x * rsqrt(mean(x^2) + eps) * weight, row by row. Replicated: the squares go to 16 lanes (lane = column mod 16,
  // columns ascending, lane = fma(x, x, lane)); lanes are added pairwise, i with i+8, then i+4, i+2, i+1; the scale is
  // 1.0f / sqrtf(sum / columns + eps); y = (x * scale) * weight.
  virtual void rms_norm(View x, const float* weight, float eps, View y) = 0;

  // residual += ((terms[0] + terms[1]) + terms[2]) + ...; then, if weight is given, normed = rms_norm(residual). A
  // gate's epilogue. Replicated: plain additions in the order of `terms`.
  virtual void add_norm(std::span<const View> terms, View residual, const float* weight, float eps, View normed) = 0;

  // A hint, given while the terms are on their way: add_norm() of these comes next.
  virtual void expect_add_norm(View /*residual*/, const float* /*weight*/) {}

  // out = ((terms[0] + terms[1]) + terms[2]) + ... Replicated.
  virtual void sum(std::span<const View> terms, View out) = 0;

  // In place, per head: if weight is given, rms_norm over head_dim (any fixed order); then half-rotation of the first
  // 2 * cosines.columns elements: with h = cosines.columns, (a, b) = (x[i], x[i+h]) becomes (a cos - b sin, b cos + a
  // sin). cosines and sines are [rows, h], by row.
  virtual void norm_rope(HeadsView x, const float* weight, float eps, View cosines, View sines) = 0;

  // Writes the spans' rows of k and v (head_dim elements a head) to their places in the pages, rounded to the pages'
  // type.
  virtual void store_kv(const KvView& kv, std::span<const SequenceSpan> spans, HeadsView k, HeadsView v) = 0;

  // Causal attention of every row over the pages: row at position p sees tokens [0, p]. Query head h reads KV head
  // h / (q.heads / kv.kv_heads). out[row][h] = softmax(scale * q k^T) v, [rows, heads * head_dim]. Folded over the
  // pages, and over partials of some pages each, in token order, each one's sums in one fixed order, so that no split
  // of the rows into steps or spans changes a bit.
  virtual void attend(const KvView& kv, std::span<const SequenceSpan> spans, HeadsView q, float scale, View out) = 0;
  virtual OrderClass attention_order() const = 0;

  // x *= sigmoid(gate), head by head.
  virtual void sigmoid_gate(View x, HeadsView gate) = 0;

  // gate = silu(gate) * up.
  virtual void swiglu(View gate, View up) = 0;

  // Depthwise causal convolution and silu: out[t][c] = silu(sum_i weight[c][i] * u[t - taps + 1 + i][c]), i ascending.
  // Inputs before the span's first row come from state_in's convolution slot; the last taps - 1 inputs go to
  // state_out's. weight is [channels][taps]; out is not u.
  virtual void short_convolution(const StateView& state, const DeltaNetShape& shape,
                                 std::span<const SequenceSpan> spans, const float* weight, View u, View out) = 0;

  // The gated delta rule. qkv is the convolution's output [rows, channels]; b and a are [rows, value_heads]. Per row
  // and value head: q and k scaled by rsqrt(sum of squares + 1e-6), q also by key_dim^-0.5; beta = sigmoid(b), g =
  // -exp(a_log) * softplus(a + dt_bias); S *= exp(g); S += k (beta (v - S^T k))^T; out = S^T q. out is [rows,
  // value_heads * value_dim]. kChunked does 64 rows at a time where a
  // span has many (the same in real arithmetic), kRecurrent one after the other.
  virtual void delta_rule(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans,
                          View qkv, View b, View a, const float* a_log, const float* dt_bias, DeltaNetForm form,
                          View out) = 0;

  // x = weight * rms_norm over head_dim (plain) * silu(gate), per head of head_dim elements; x and gate are [rows,
  // heads * dim].
  virtual void gated_norm(View x, View gate, int head_dim, const float* weight, float eps) = 0;

  // The k largest of a logits row, by value descending, then id ascending; ids count from first_id. Returns how many.
  virtual int top_k(std::span<const float> logits, int32_t first_id, std::span<Candidate> best) = 0;

  // "cpu avx2, 2 threads": for --stats and messages.
  virtual std::string description() const = 0;
};

}  // namespace coprime
