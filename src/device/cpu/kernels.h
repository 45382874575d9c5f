// The kernels of device/cpu by family: what each is given, and its table. A kernel does a part of an operation's work
// on the calling thread; the device splits and checks. Order classes and formulas are those of device/device.h.
#pragma once

#include <span>

#include "device/cpu/kernel_table.h"
#include "device/device.h"
#include "device/work_counter.h"

namespace coprime {

// linear(): tiles [first, last) of one weight for all rows of x.
struct LinearWork {
  const std::byte* weight;  // packed tiles
  const float* bias;        // or nullptr
  int64_t rows;             // of the weight
  int64_t first_tile, last_tile;
  View x, y;
};
using LinearFn = void (*)(const LinearWork&);
std::span<const KernelRow<LinearFn>> linear_kernels();

// How a kernel splits: each work item is computed alone, so that no split changes a bit.
// attend(): query heads [first_head, last_head) of one KV head, for rows [first_row, last_row) of one span, over
// partials [first_partial, last_partial) of the tokens: all that the rows see, or one of them.
constexpr int kAttentionQueries = 48;  // the most that (last_head - first_head) * (last_row - first_row) may be
constexpr int kPartialPages = 4;       // a partial begins at every multiple of so many pages
constexpr int64_t kPartialTokens = int64_t{kPartialPages} * kPageTokens;
// A partial as it is kept: o [head_dim], m, l. Starts are a cache line apart.
constexpr int64_t partial_floats(int64_t head_dim) { return (head_dim + 2 + 15) / 16 * 16; }
constexpr int64_t attention_scratch(int64_t head_dim) { return (2 * kPageTokens + kAttentionQueries) * head_dim; }
struct AttentionWork {
  const KvView* kv;
  const SequenceSpan* span;
  HeadsView q;
  View out;
  float scale;
  int kv_head, first_head, last_head;
  int64_t first_row, last_row;  // counted from the span's first
  int64_t first_partial, last_partial;
  float* partials;  // null: they are merged into out; else [q.rows][q.heads][most_partials]: kept for merge()
  int64_t most_partials;
  float* scratch;  // attention_scratch() floats

  // Where a partial of the work's query i is kept.
  int64_t partial_at(int i, int64_t partial) const {
    const int group = last_head - first_head;
    const int64_t row = span->first_row + first_row + i / group, head = first_head + i % group;
    return ((row * q.heads + head) * most_partials + partial) * partial_floats(q.head_dim);
  }
};
struct AttentionKernels {
  void (*attend)(const AttentionWork&);
  // The first `count` partials of one query become its row of head_dim elements.
  void (*merge)(const float* partials, int64_t count, int64_t head_dim, float* out);
};
using AttentionFn = const AttentionKernels*;
std::span<const KernelRow<AttentionFn>> attention_kernels();

// delta_rule(): one value head of one span.
struct DeltaRuleWork {
  DeltaNetShape shape;
  const SequenceSpan* span;
  int head;
  View qkv, b, a, out;
  float a_log, dt_bias;
  const float* state_in;      // [key_dim][value_dim], or nullptr: zero
  float* state_out;           // likewise; never nullptr
  float* scratch;             // delta_rule_scratch() floats, aligned to a cache line
  WorkCounter done{nullptr};  // counts chunks of rows
};
constexpr int kDeltaChunk = 64;
int64_t delta_rule_scratch(const DeltaNetShape& shape);  // for either form

// short_convolution(): channels [first, last) of one span, at most kConvolutionChannels of them.
constexpr int64_t kConvolutionChannels = 256;
struct ConvolutionWork {
  int taps;
  int64_t channels, first, last;
  const SequenceSpan* span;
  const float* weight;
  const float* state_in;  // [taps - 1][channels], or nullptr: zero
  float* state_out;       // or nullptr; may be state_in
  View u, out;
};

// Everything that reads and writes floats only: one set a target.
struct RowKernels {
  // y = x * rsqrt(mean(x^2) + eps) * weight, for one row; y may be x.
  void (*rms_norm)(const float* x, int64_t columns, const float* weight, float eps, float* y);
  // out = ((terms[0] + terms[1]) + ...); one row.
  void (*sum)(std::span<const View> terms, int64_t row, int64_t columns, float* out);
  // The same added to the residual; then normed = rms_norm(residual) unless `weight` is null. The squares are taken on
  // the way: a gate's row is read once more only.
  void (*add_norm)(std::span<const View> terms, int64_t row, int64_t columns, float* residual, const float* weight,
                   float eps, float* normed);
  void (*rotate)(float* x, int64_t half, const float* cosines, const float* sines);
  void (*sigmoid_gate)(float* x, const float* gate, int64_t count);
  void (*swiglu)(float* gate, const float* up, int64_t count);
  void (*gated_norm)(float* x, const float* gate, int64_t head_dim, const float* weight, float eps);
  int64_t (*find_above)(std::span<const float> logits, int64_t first, float threshold);
  // y = f(x), element by element.
  void (*exp)(const float* x, float* y, int64_t count);
  void (*sigmoid)(const float* x, float* y, int64_t count);
  void (*silu)(const float* x, float* y, int64_t count);
  void (*softplus)(const float* x, float* y, int64_t count);
};
using RowFn = const RowKernels*;
std::span<const KernelRow<RowFn>> row_kernels();

using DeltaRuleFn = void (*)(const DeltaRuleWork&);
struct DeltaNetKernels {
  DeltaRuleFn recurrent, chunked;
  void (*convolution)(const ConvolutionWork&);
};
using DeltaNetFn = const DeltaNetKernels*;
std::span<const KernelRow<DeltaNetFn>> delta_net_kernels();

}  // namespace coprime
