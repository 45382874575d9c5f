// The shapes that each operation asks for, checked once for all host devices. A broken one is a bug of the caller and
// aborts.
#pragma once

#include "device/device.h"

namespace coprime {

void check_same_shape(View a, View b);
void check_spans(std::span<const SequenceSpan> spans, int64_t rows);
void check_embed(const Weight& table, std::span<const int32_t> ids, View out);
void check_linear(View x, std::span<const LinearTask> tasks);
void check_add_norm(std::span<const View> terms, View residual, const float* weight, View normed);
void check_sum(std::span<const View> terms, View out);
void check_norm_rope(const HeadsView& x, View cosines, View sines);
void check_kv(const KvView& kv, std::span<const SequenceSpan> spans, int64_t rows);
void check_store_kv(const KvView& kv, std::span<const SequenceSpan> spans, const HeadsView& k, const HeadsView& v);
void check_attend(const KvView& kv, std::span<const SequenceSpan> spans, const HeadsView& q, View out);
void check_sigmoid_gate(View x, const HeadsView& gate);
void check_delta_net(const DeltaNetShape& shape);
void check_short_convolution(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans,
                             View u, View out);
void check_delta_rule(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans, View qkv,
                      View b, View a, View out);
void check_gated_norm(View x, View gate, int head_dim);

// More taps than any model has: kernels keep a history of this many on the stack.
constexpr int kMaxTaps = 16;

}  // namespace coprime
