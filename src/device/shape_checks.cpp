#include "device/shape_checks.h"

#include "base/check.h"
#include "base/limits.h"

namespace coprime {

namespace {
void check_terms(std::span<const View> terms) {
  COPRIME_CHECK(terms.size() <= static_cast<size_t>(kMaxRanks), "a sum of {} terms, at most {}", terms.size(),
                kMaxRanks);
}
}  // namespace

void check_same_shape(View a, View b) {
  COPRIME_CHECK(a.rows == b.rows && a.columns == b.columns, "{} x {} and {} x {}", a.rows, a.columns, b.rows,
                b.columns);
}

void check_spans(std::span<const SequenceSpan> spans, int64_t rows) {
  for (const SequenceSpan& span : spans) {
    COPRIME_CHECK(
        span.first_row >= 0 && span.num_rows >= 0 && span.start >= 0 && span.first_row + span.num_rows <= rows,
        "rows {}+{} at {} of {}", span.first_row, span.num_rows, span.start, rows);
  }
}

void check_embed(const Weight& table, std::span<const int32_t> ids, View out) {
  COPRIME_CHECK(out.rows == static_cast<int64_t>(ids.size()) && out.columns == table.columns,
                "{} ids, {} columns into {} x {}", ids.size(), table.columns, out.rows, out.columns);
}

void check_linear(View x, std::span<const LinearTask> tasks) {
  for (const LinearTask& task : tasks) {
    const Weight& weight = *task.weight;
    COPRIME_CHECK(weight.input_columns() == x.columns && task.y.rows == x.rows && task.y.columns == weight.rows,
                  "{}: {} x {} by {} x {} into {} x {}", weight.name, x.rows, x.columns, weight.rows,
                  weight.input_columns(), task.y.rows, task.y.columns);
  }
}

void check_add_norm(std::span<const View> terms, View residual, const float* weight, View normed) {
  check_terms(terms);
  for (View term : terms) check_same_shape(term, residual);
  if (weight != nullptr) check_same_shape(residual, normed);
}

void check_sum(std::span<const View> terms, View out) {
  COPRIME_CHECK(!terms.empty(), "a sum of nothing");
  check_terms(terms);
  for (View term : terms) check_same_shape(term, out);
}

void check_norm_rope(const HeadsView& x, View cosines, View sines) {
  check_same_shape(cosines, sines);
  COPRIME_CHECK(cosines.columns == 0 || (cosines.rows >= x.rows && 2 * cosines.columns <= x.head_dim),
                "{} rows of {} and tables of {} x {}", x.rows, x.head_dim, cosines.rows, cosines.columns);
}

void check_kv(const KvView& kv, std::span<const SequenceSpan> spans, int64_t rows) {
  COPRIME_CHECK(is_float(kv.type) || kv.scaled(), "{}", dtype_name(kv.type));
  check_spans(spans, rows);
  for (const SequenceSpan& span : spans) {
    COPRIME_CHECK(static_cast<int64_t>(span.pages.size()) * kPageTokens >= span.start + span.num_rows,
                  "{} pages for {} tokens", span.pages.size(), span.start + span.num_rows);
  }
}

void check_store_kv(const KvView& kv, std::span<const SequenceSpan> spans, const HeadsView& k, const HeadsView& v) {
  COPRIME_CHECK(k.heads == kv.kv_heads && v.heads == kv.kv_heads && k.head_dim == kv.head_dim &&
                    v.head_dim == kv.head_dim && k.rows == v.rows,
                "{} x {} and {} x {} into {} x {}", k.heads, k.head_dim, v.heads, v.head_dim, kv.kv_heads, kv.head_dim);
  check_kv(kv, spans, k.rows);
}

void check_attend(const KvView& kv, std::span<const SequenceSpan> spans, const HeadsView& q, View out) {
  COPRIME_CHECK(q.heads == 0 || (kv.kv_heads > 0 && q.heads % kv.kv_heads == 0), "{} heads over {}", q.heads,
                kv.kv_heads);
  COPRIME_CHECK(q.head_dim == kv.head_dim && out.rows == q.rows && out.columns == int64_t{q.heads} * q.head_dim,
                "{} rows of {} x {}, keys of {}, into {} x {}", q.rows, q.heads, q.head_dim, kv.head_dim, out.rows,
                out.columns);
  check_kv(kv, spans, q.rows);
}

void check_sigmoid_gate(View x, const HeadsView& gate) {
  COPRIME_CHECK(x.rows == gate.rows && x.columns == int64_t{gate.heads} * gate.head_dim, "{} x {} by {} x {} x {}",
                x.rows, x.columns, gate.rows, gate.heads, gate.head_dim);
}

void check_delta_net(const DeltaNetShape& shape) {
  COPRIME_CHECK(shape.value_heads == 0 || (shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0),
                "{} value heads over {}", shape.value_heads, shape.key_heads);
}

void check_short_convolution(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans,
                             View u, View out) {
  check_delta_net(shape);
  check_same_shape(u, out);
  check_spans(spans, u.rows);
  COPRIME_CHECK(shape.taps >= 1 && shape.taps <= kMaxTaps, "{} taps", shape.taps);
  COPRIME_CHECK(u.columns == shape.channels() && state.convolution_stride >= (shape.taps - 1) * shape.channels(),
                "{} columns, {} channels, a slot of {}", u.columns, shape.channels(), state.convolution_stride);
  COPRIME_CHECK(u.data != out.data || u.rows == 0 || u.columns == 0, "in place");
}

void check_delta_rule(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans, View qkv,
                      View b, View a, View out) {
  check_delta_net(shape);
  check_same_shape(a, b);
  check_spans(spans, qkv.rows);
  COPRIME_CHECK(qkv.columns == shape.channels() && a.columns == shape.value_heads && a.rows == qkv.rows &&
                    out.rows == qkv.rows && out.columns == int64_t{shape.value_heads} * shape.value_dim,
                "{} x {}, {} x {}, {} x {}", qkv.rows, qkv.columns, a.rows, a.columns, out.rows, out.columns);
  COPRIME_CHECK(state.recurrent_stride >= int64_t{shape.value_heads} * shape.key_dim * shape.value_dim, "a slot of {}",
                state.recurrent_stride);
}

void check_gated_norm(View x, View gate, int head_dim) {
  check_same_shape(x, gate);
  COPRIME_CHECK(head_dim > 0 && x.columns % head_dim == 0, "{} columns, heads of {}", x.columns, head_dim);
}

}  // namespace coprime
