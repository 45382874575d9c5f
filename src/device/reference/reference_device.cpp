#include "device/reference/reference_device.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "device/kv_pages.h"
#include "device/packing.h"
#include "device/quant/fp8_kernels.h"
#include "device/quant/quant_kernels.h"
#include "device/quant/quant_layout.h"
#include "device/shape_checks.h"
#include "device/top_k.h"
#include "device/work_counter.h"

namespace coprime {
namespace {

constexpr float kL2NormEps = 1e-6f;

// The replicated order of sums: 16 lanes, added pairwise.
float sum_of_lanes(std::array<float, 16> lanes) {
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

float sum_of_squares(const float* x, int64_t count) {
  std::array<float, 16> lanes{};
  for (int64_t c = 0; c < count; ++c) {
    float& lane = lanes[static_cast<size_t>(c % 16)];
    lane = std::fma(x[c], x[c], lane);
  }
  return sum_of_lanes(lanes);
}

float rms_scale(const float* x, int64_t count, float eps) {
  return 1.0f / std::sqrt(sum_of_squares(x, count) / static_cast<float>(count) + eps);
}

float sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }

float silu(float x) {
  x = std::max(x, -3e38f);  // -inf has the limit, zero
  return x / (1.0f + std::exp(-x));
}

float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

int64_t find_above(std::span<const float> logits, int64_t first, float threshold) {
  const auto size = static_cast<int64_t>(logits.size());
  while (first < size && !(logits[static_cast<size_t>(first)] > threshold)) ++first;
  return first;
}

class ReferenceDevice final : public Device {
 public:
  ReferenceDevice(MathMode math, std::atomic<uint64_t>* progress) : math_(math), counter_(progress) {}

  std::unique_ptr<WeightSink> pack(Weight& weight, DType type, WeightUse use, float offset) override {
    return make_packing_sink(weight, type, use, offset, weights_);
  }

  void embed(const Weight& table, std::span<const int32_t> ids, int64_t first_id, View out) override {
    check_embed(table, ids, out);
    const Component& values = linear_values(table);
    for (int64_t r = 0; r < out.rows; ++r) {
      const int64_t id = ids[static_cast<size_t>(r)] - first_id;
      for (int64_t c = 0; c < out.columns; ++c) {
        out.row(r)[c] = id < 0 || id >= table.rows ? 0.0f : packed_value(values, table.columns, id, c) + 0.0f;
      }
    }
    counter_.add();
  }

  void linear(View x, std::span<const LinearTask> tasks) override {
    check_linear(x, tasks);
    for (const LinearTask& task : tasks) {
      const Weight& weight = *task.weight;
      const Component& values = linear_values(weight);
      const float* bias = linear_bias(weight);
      const View in = inputs_of(x, weight);
      if (is_block(values.type) && math_ != MathMode::kF32) {
        if (values.type == DType::kFp8) {
          multiply_fp8(in, weight, values, bias, task.y);
        } else {
          multiply_integers(in, weight, values, bias, task.y);
        }
        continue;
      }
      row_.resize(static_cast<size_t>(in.columns));
      for (int64_t n = 0; n < weight.rows; ++n) {
        dequantize_row(values, in.columns, n, row_.data());
        for (int64_t m = 0; m < in.rows; ++m) {
          float sum = 0;
          for (int64_t k = 0; k < in.columns; ++k) sum = std::fma(row_[static_cast<size_t>(k)], in.row(m)[k], sum);
          task.y.row(m)[n] = bias != nullptr ? sum + bias[n] : sum;
        }
        counter_.add();
      }
    }
    counter_.add();
  }
  OrderClass linear_order() const override { return OrderClass::kSequentialFma; }

  void rms_norm(View x, const float* weight, float eps, View y) override {
    check_same_shape(x, y);
    for (int64_t r = 0; r < x.rows; ++r) norm_row(x.row(r), x.columns, weight, eps, y.row(r));
    counter_.add();
  }

  void add_norm(std::span<const View> terms, View residual, const float* weight, float eps, View normed) override {
    check_add_norm(terms, residual, weight, normed);
    for (int64_t r = 0; r < residual.rows; ++r) {
      for (int64_t c = 0; c < residual.columns && !terms.empty(); ++c) residual.row(r)[c] += sum_at(terms, r, c);
      if (weight != nullptr) norm_row(residual.row(r), residual.columns, weight, eps, normed.row(r));
    }
    counter_.add();
  }

  void zero(View out) override {
    for (int64_t r = 0; r < out.rows; ++r) std::fill_n(out.row(r), out.columns, 0.0f);
    counter_.add();
  }

  void sum(std::span<const View> terms, View out) override {
    check_sum(terms, out);
    for (int64_t r = 0; r < out.rows; ++r) {
      for (int64_t c = 0; c < out.columns; ++c) out.row(r)[c] = sum_at(terms, r, c);
    }
    counter_.add();
  }

  void norm_rope(HeadsView x, const float* weight, float eps, View cosines, View sines) override {
    check_norm_rope(x, cosines, sines);
    const int64_t half = cosines.columns;
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int h = 0; h < x.heads; ++h) {
        float* head = x.head(r, h);
        if (weight != nullptr) norm_row(head, x.head_dim, weight, eps, head);
        for (int64_t i = 0; i < half; ++i) {
          const float a = head[i], b = head[i + half], cosine = cosines.row(r)[i], sine = sines.row(r)[i];
          head[i] = std::fma(-b, sine, a * cosine);
          head[i + half] = std::fma(a, sine, b * cosine);
        }
      }
    }
    counter_.add();
  }

  void store_kv(const KvView& kv, std::span<const SequenceSpan> spans, HeadsView k, HeadsView v) override {
    check_store_kv(kv, spans, k, v);
    for (const SequenceSpan& span : spans) {
      for (int head = 0; head < kv.kv_heads; ++head) store_kv_head(kv, span, k, v, head);
    }
    counter_.add();
  }

  void attend(const KvView& kv, std::span<const SequenceSpan> spans, HeadsView q, float scale, View out) override {
    check_attend(kv, spans, q, out);
    for (const SequenceSpan& span : spans) {
      for (int64_t i = 0; i < span.num_rows; ++i) {
        const int64_t row = span.first_row + i;
        for (int h = 0; h < q.heads; ++h) {
          attend_head(kv, span, span.start + i + 1, h / (q.heads / kv.kv_heads), q.head(row, h), scale,
                      out.row(row) + int64_t{h} * q.head_dim);
        }
        counter_.add();
      }
    }
    counter_.add();
  }
  OrderClass attention_order() const override { return OrderClass::kPlain; }

  void sigmoid_gate(View x, HeadsView gate) override {
    check_sigmoid_gate(x, gate);
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int h = 0; h < gate.heads; ++h) {
        for (int64_t d = 0; d < gate.head_dim; ++d)
          x.row(r)[int64_t{h} * gate.head_dim + d] *= sigmoid(gate.head(r, h)[d]);
      }
    }
    counter_.add();
  }

  void swiglu(View gate, View up) override {
    check_same_shape(gate, up);
    for (int64_t r = 0; r < gate.rows; ++r) {
      for (int64_t c = 0; c < gate.columns; ++c) gate.row(r)[c] = silu(gate.row(r)[c]) * up.row(r)[c];
    }
    counter_.add();
  }

  void short_convolution(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans,
                         const float* weight, View u, View out) override {
    check_short_convolution(state, shape, spans, u, out);
    const int past = shape.taps - 1;
    for (const SequenceSpan& span : spans) {
      if (span.num_rows == 0 && span.state_in == span.state_out) continue;
      for (int64_t c = 0; c < shape.channels(); ++c) {
        std::array<float, kMaxTaps> window{};  // [i]: the input of tap i
        for (int i = 0; i < past && span.state_in >= 0; ++i) {
          window[static_cast<size_t>(i)] =
              state.convolution[span.state_in * state.convolution_stride + i * shape.channels() + c];
        }
        for (int64_t t = span.first_row; t < span.first_row + span.num_rows; ++t) {
          window[static_cast<size_t>(past)] = u.row(t)[c];
          float sum = 0;
          for (int i = 0; i < shape.taps; ++i)
            sum = std::fma(weight[c * shape.taps + i], window[static_cast<size_t>(i)], sum);
          out.row(t)[c] = silu(sum);
          std::copy(window.begin() + 1, window.begin() + shape.taps, window.begin());
        }
        for (int i = 0; i < past && span.state_out >= 0; ++i) {
          state.convolution[span.state_out * state.convolution_stride + i * shape.channels() + c] =
              window[static_cast<size_t>(i)];
        }
      }
    }
    counter_.add();
  }

  // Both forms row by row: the oracle of the chunked one is the recurrence.
  void delta_rule(const StateView& state, const DeltaNetShape& shape, std::span<const SequenceSpan> spans, View qkv,
                  View b, View a, const float* a_log, const float* dt_bias, DeltaNetForm, View out) override {
    check_delta_rule(state, shape, spans, qkv, b, a, out);
    for (const SequenceSpan& span : spans) {
      for (int head = 0; head < shape.value_heads; ++head) {
        delta_head(state, shape, span, head, qkv, b, a, a_log[head], dt_bias[head], out);
      }
    }
    counter_.add();
  }

  void gated_norm(View x, View gate, int head_dim, const float* weight, float eps) override {
    check_gated_norm(x, gate, head_dim);
    for (int64_t r = 0; r < x.rows; ++r) {
      for (int64_t begin = 0; begin < x.columns; begin += head_dim) {
        float* head = x.row(r) + begin;
        norm_row(head, head_dim, weight, eps, head);
        for (int64_t i = 0; i < head_dim; ++i) head[i] *= silu(gate.row(r)[begin + i]);
      }
    }
    counter_.add();
  }

  int top_k(std::span<const float> logits, int32_t first_id, std::span<Candidate> best) override {
    counter_.add();
    return select_top_k(logits, first_id, best, find_above);
  }

  std::string description() const override { return "cpu reference, 1 thread"; }

 private:
  // x, or its columns where the weight holds them.
  View inputs_of(View x, const Weight& weight) {
    if (!weight.inputs) return x;
    held_.resize(static_cast<size_t>(x.rows * weight.columns));
    const View held = make_view(held_.data(), x.rows, weight.columns);
    for (int64_t r = 0; r < x.rows; ++r) place_inputs(weight, x.row(r), held.row(r));
    return held;
  }

  // As device/quant/quant_kernels.h states it.
  void multiply_integers(View x, const Weight& weight, const Component& values, const float* bias, View y) {
    const auto kernels = quant_reference_rows();
    const auto kernel = std::ranges::find(kernels, values.type, &QuantKernelRow::type);
    QuantActivations integers{.rows = x.rows, .blocks = x.columns / kQuantBlock};
    integers.form = kernel->functions.form(math_, x.rows);
    integers_.resize(static_cast<size_t>(x.rows * integers.row_bytes()));
    integers.data = integers_.data();
    kernel->functions.quantise({.x = x, .math = math_, .out = integers, .first = 0, .last = x.rows});
    QuantWork work{.weight = values.bytes.data(), .bias = bias, .rows = weight.rows, .x = integers, .y = y};
    for (int64_t tile = 0; tile < quant_tiles(weight.rows); ++tile) {
      work.first_tile = tile, work.last_tile = tile + 1;
      kernel->functions.multiply(work);
      counter_.add();
    }
  }

  void multiply_fp8(View x, const Weight& weight, const Component& values, const float* bias, View y) {
    LinearWork work{values.bytes.data(), bias, weight.rows, 0, 0, x, y};
    for (int64_t tile = 0; tile < tiles_of(weight.rows); ++tile) {
      work.first_tile = tile, work.last_tile = tile + 1;
      fp8_reference().multiply(work);
      counter_.add();
    }
  }

  static void norm_row(const float* x, int64_t count, const float* weight, float eps, float* y) {
    const float scale = rms_scale(x, count, eps);
    for (int64_t c = 0; c < count; ++c) y[c] = (x[c] * scale) * weight[c];
  }

  static float sum_at(std::span<const View> terms, int64_t r, int64_t c) {
    float sum = terms[0].row(r)[c];
    for (View term : terms.subspan(1)) sum += term.row(r)[c];
    return sum;
  }

  // Softmax over tokens [0, limit), folded page by page: m the maximum so far, l the sum of exp(s - m), o that of exp(s
  // - m) v.
  static void attend_head(const KvView& kv, const SequenceSpan& span, int64_t limit, int kv_head, const float* q,
                          float scale, float* o) {
    float m = -std::numeric_limits<float>::infinity(), l = 0;
    std::fill_n(o, kv.head_dim, 0.0f);
    for (int64_t first = 0; first < limit; first += kPageTokens) {
      const int32_t page = span.pages[static_cast<size_t>(first / kPageTokens)];
      const int64_t count = std::min<int64_t>(kPageTokens, limit - first);
      std::byte *const keys = kv.keys(page, kv_head), *const values = kv.values(page, kv_head);
      const float *const key_scales = kv.scales(keys), *const value_scales = kv.scales(values);
      std::array<float, kPageTokens> p{};
      float highest = m;
      for (int64_t t = 0; t < count; ++t) {
        float sum = 0;
        for (int64_t d = 0; d < kv.head_dim; ++d)
          sum = std::fma(q[d], page_value(kv.type, keys, d * kPageTokens + t), sum);
        if (key_scales != nullptr) sum *= key_scales[t];
        p[static_cast<size_t>(t)] = sum * scale;
        highest = std::max(highest, sum * scale);
      }
      const float alpha = std::exp(m - highest);
      m = highest;
      std::array<float, 16> lanes{};
      for (int64_t t = 0; t < count; ++t) {
        float& weight = p[static_cast<size_t>(t)];
        weight = std::exp(weight - m);
        lanes[static_cast<size_t>(t % 16)] += weight;
        if (value_scales != nullptr) weight *= value_scales[t];
      }
      l = std::fma(l, alpha, sum_of_lanes(lanes));
      for (int64_t d = 0; d < kv.head_dim; ++d) {
        o[d] *= alpha;
        for (int64_t t = 0; t < count; ++t)
          o[d] = std::fma(p[static_cast<size_t>(t)], page_value(kv.type, values, t * kv.head_dim + d), o[d]);
      }
    }
    for (int64_t d = 0; d < kv.head_dim; ++d) o[d] /= l;
  }

  void delta_head(const StateView& state, const DeltaNetShape& shape, const SequenceSpan& span, int head, View qkv,
                  View b, View a, float a_log, float dt_bias, View out) const {
    const int dk = shape.key_dim, dv = shape.value_dim, key_head = head / (shape.value_heads / shape.key_heads);
    const int64_t cells = int64_t{dk} * dv;
    std::vector<float> s(static_cast<size_t>(cells)), delta(static_cast<size_t>(dv));
    if (span.state_in >= 0)
      std::copy_n(state.recurrent + span.state_in * state.recurrent_stride + head * cells, cells, s.begin());
    for (int64_t t = span.first_row; t < span.first_row + span.num_rows; ++t) {
      counter_.add();
      const float* q = qkv.row(t) + int64_t{key_head} * dk;
      const float* k = q + int64_t{shape.key_heads} * dk;
      const float* v = qkv.row(t) + 2 * int64_t{shape.key_heads} * dk + int64_t{head} * dv;
      const float q_scale = 1.0f / std::sqrt(sum_of_squares(q, dk) + kL2NormEps) / std::sqrt(static_cast<float>(dk));
      const float k_scale = 1.0f / std::sqrt(sum_of_squares(k, dk) + kL2NormEps);
      const float beta = sigmoid(b.row(t)[head]);
      const float decay = std::exp(-std::exp(a_log) * softplus(a.row(t)[head] + dt_bias));
      for (float& cell : s) cell *= decay;
      for (int64_t j = 0; j < dv; ++j) {
        float recalled = 0;
        for (int64_t i = 0; i < dk; ++i)
          recalled = std::fma(k[i] * k_scale, s[static_cast<size_t>(i * dv + j)], recalled);
        delta[static_cast<size_t>(j)] = beta * (v[j] - recalled);
      }
      float* o = out.row(t) + int64_t{head} * dv;
      std::fill_n(o, dv, 0.0f);
      for (int64_t i = 0; i < dk; ++i) {
        for (int64_t j = 0; j < dv; ++j) {
          float& cell = s[static_cast<size_t>(i * dv + j)];
          cell = std::fma(k[i] * k_scale, delta[static_cast<size_t>(j)], cell);
          o[j] = std::fma(q[i] * q_scale, cell, o[j]);
        }
      }
    }
    if (span.state_out >= 0)
      std::copy(s.begin(), s.end(), state.recurrent + span.state_out * state.recurrent_stride + head * cells);
  }

  MathMode math_;
  WorkCounter counter_;
  BufferArena weights_;
  std::vector<float> row_, held_;  // of a weight; x as a weight wants it
  std::vector<std::byte> integers_;
};

}  // namespace

std::unique_ptr<Device> make_reference_device(MathMode math, std::atomic<uint64_t>* progress) {
  return std::make_unique<ReferenceDevice>(math, progress);
}

}  // namespace coprime
