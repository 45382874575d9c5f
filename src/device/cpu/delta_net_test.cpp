// The short convolution and both forms of the delta rule against a recurrence in double written here, against each
// other, and their claims of independence.
#include <gtest/gtest.h>

#include "device/reference/reference_device.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;

constexpr double kFormTolerance = 2e-6;

// Inputs of one sequence, as large as a model's: q, k and v after the convolution, the state of earlier rows in slot 0.
struct Problem {
  Problem(DeltaNetShape chosen, int64_t num_rows, uint32_t seed)
      : shape(chosen),
        rows(num_rows),
        qkv(testing::random_matrix(rows, shape.channels(), seed, 0.5f)),
        b(testing::random_matrix(rows, shape.value_heads, seed + 1)),
        a(testing::random_matrix(rows, shape.value_heads, seed + 2)),
        a_log(testing::random_floats(static_cast<size_t>(shape.value_heads), seed + 3, 0.5f)),
        dt_bias(testing::random_floats(static_cast<size_t>(shape.value_heads), seed + 4)),
        cells(int64_t{shape.value_heads} * shape.key_dim * shape.value_dim),
        history((shape.taps - 1) * shape.channels()),
        recurrent(testing::random_floats(static_cast<size_t>(3 * cells), seed + 5, 0.1f)),
        convolution(testing::random_floats(static_cast<size_t>(3 * history), seed + 6)) {}
  StateView state() { return {recurrent.data(), convolution.data(), cells, history}; }
  SequenceSpan span(int64_t first_row, int64_t count, int in, int out) const {
    SequenceSpan made;
    made.first_row = first_row;
    made.num_rows = count;
    made.state_in = in;
    made.state_out = out;
    return made;
  }
  std::vector<float> slot(int index) const {
    return {recurrent.begin() + index * cells, recurrent.begin() + (index + 1) * cells};
  }
  DeltaNetShape shape;
  int64_t rows;
  Matrix qkv, b, a;
  std::vector<float> a_log, dt_bias;
  int64_t cells, history;
  std::vector<float> recurrent, convolution;
};

std::vector<float> run(Device& device, Problem& p, std::span<const SequenceSpan> spans, DeltaNetForm form) {
  Matrix out(p.rows, int64_t{p.shape.value_heads} * p.shape.value_dim);
  device.delta_rule(p.state(), p.shape, spans, p.qkv.view(), p.b.view(), p.a.view(), p.a_log.data(), p.dt_bias.data(),
                    form, out.view());
  return out.data;
}

// The recurrence of the formula, in double, from slot `in` (-1: zero); the last state comes back in `last`.
std::vector<float> expected_delta_rule(const Problem& p, int in, std::vector<float>& last) {
  const DeltaNetShape& shape = p.shape;
  const int64_t dk = shape.key_dim, dv = shape.value_dim, width = shape.value_heads * dv;
  std::vector<float> out(static_cast<size_t>(p.rows * width));
  last.clear();
  for (int j = 0; j < shape.value_heads; ++j) {
    std::vector<std::vector<double>> s(static_cast<size_t>(dk), std::vector<double>(static_cast<size_t>(dv), 0.0));
    for (int64_t x = 0; x < dk && in >= 0; ++x) {
      for (int64_t y = 0; y < dv; ++y) {
        s[static_cast<size_t>(x)][static_cast<size_t>(y)] =
            p.recurrent[static_cast<size_t>(in * p.cells + (j * dk + x) * dv + y)];
      }
    }
    const int64_t key_head = j / (shape.value_heads / shape.key_heads);
    for (int64_t t = 0; t < p.rows; ++t) {
      const float* row = p.qkv.data.data() + t * shape.channels();
      const float *q = row + key_head * dk, *k = row + (shape.key_heads + key_head) * dk,
                  *v = row + 2 * shape.key_heads * dk + j * dv;
      double qq = 1e-6, kk = 1e-6;
      for (int64_t x = 0; x < dk; ++x) qq += double{q[x]} * q[x], kk += double{k[x]} * k[x];
      const auto head = static_cast<size_t>(j);
      const double beta = 1 / (1 + std::exp(-double{p.b.data[static_cast<size_t>(t * shape.value_heads + j)]}));
      const double step = double{p.a.data[static_cast<size_t>(t * shape.value_heads + j)]} + double{p.dt_bias[head]};
      const double decay = std::exp(-std::exp(double{p.a_log[head]}) * std::log1p(std::exp(step)));
      for (auto& cells : s) {
        for (double& cell : cells) cell *= decay;
      }
      for (int64_t y = 0; y < dv; ++y) {
        double recalled = 0, sum = 0;
        for (int64_t x = 0; x < dk; ++x)
          recalled += k[x] / std::sqrt(kk) * s[static_cast<size_t>(x)][static_cast<size_t>(y)];
        const double delta = beta * (v[y] - recalled);
        for (int64_t x = 0; x < dk; ++x) {
          double& cell = s[static_cast<size_t>(x)][static_cast<size_t>(y)];
          cell += k[x] / std::sqrt(kk) * delta;
          sum += q[x] / std::sqrt(qq) / std::sqrt(static_cast<double>(dk)) * cell;
        }
        out[static_cast<size_t>(t * width + j * dv + y)] = static_cast<float>(sum);
      }
    }
    for (const auto& cells : s) {
      for (double cell : cells) last.push_back(static_cast<float>(cell));
    }
  }
  return out;
}

constexpr DeltaNetShape kShapes[] = {{2, 6, 32, 32, 4}, {1, 2, 128, 128, 4}, {1, 1, 16, 48, 4}, {2, 2, 12, 20, 3}};

TEST(DeltaRule, both_forms_are_the_recurrence) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(make_reference_device());
  for (Isa isa : testing::available_isas()) {
    devices.push_back(testing::cpu_device(isa));
    devices.push_back(testing::cpu_device(isa, 3));
  }
  for (const auto& device : devices) {
    for (const DeltaNetShape& shape : kShapes) {
      for (int64_t rows : {1, 2, 63, 64, 65, 200}) {
        for (DeltaNetForm form : {DeltaNetForm::kRecurrent, DeltaNetForm::kChunked}) {
          for (int in : {-1, 0}) {
            Problem p(shape, rows, 11);
            std::vector<float> last;
            const std::vector<float> expected = expected_delta_rule(p, in, last);
            const SequenceSpan span = p.span(0, rows, in, 1);
            ASSERT_TRUE(testing::all_near(run(*device, p, {&span, 1}, form), expected, kFormTolerance))
                << device->description() << ", " << shape.key_dim << " x " << shape.value_dim << ", " << rows
                << " rows, form " << static_cast<int>(form);
            ASSERT_TRUE(testing::all_near(p.slot(1), last, kFormTolerance));
          }
        }
      }
    }
  }
}

TEST(DeltaRule, the_forms_agree) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    for (int64_t rows : {1, 63, 64, 65, 200}) {
      Problem p({2, 6, 128, 128, 4}, rows, 21);
      const SequenceSpan recurrent = p.span(0, rows, 0, 1), chunked = p.span(0, rows, 0, 2);
      const std::vector<float> a = run(*device, p, {&recurrent, 1}, DeltaNetForm::kRecurrent);
      const std::vector<float> b = run(*device, p, {&chunked, 1}, DeltaNetForm::kChunked);
      EXPECT_TRUE(testing::all_near(a, b, kFormTolerance)) << rows;
      EXPECT_TRUE(testing::all_near(p.slot(1), p.slot(2), kFormTolerance)) << rows;
    }
  }
}

TEST(DeltaRule, a_prefill_in_pieces_is_the_prefill_at_once) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    for (DeltaNetForm form : {DeltaNetForm::kRecurrent, DeltaNetForm::kChunked}) {
      Problem p(kShapes[0], 200, 31);
      const SequenceSpan whole = p.span(0, 200, -1, 1);
      const std::vector<float> expected = run(*device, p, {&whole, 1}, form);
      std::vector<float> joined;
      const int64_t width = int64_t{p.shape.value_heads} * p.shape.value_dim;
      for (int64_t row = 0; int64_t count : {1, 62, 3, 64, 70}) {
        const SequenceSpan piece = p.span(row, count, row == 0 ? -1 : 2, 2);  // in place
        const std::vector<float> out = run(*device, p, {&piece, 1}, form);
        joined.insert(joined.end(), out.begin() + row * width, out.begin() + (row + count) * width);
        row += count;
      }
      if (form == DeltaNetForm::kRecurrent) {
        EXPECT_TRUE(testing::same_bits(joined, expected));
        EXPECT_TRUE(testing::same_bits(p.slot(2), p.slot(1)));
      } else {
        EXPECT_TRUE(testing::all_near(joined, expected, kFormTolerance));
        EXPECT_TRUE(testing::all_near(p.slot(2), p.slot(1), kFormTolerance));
      }
    }
  }
}

TEST(DeltaRule, sequences_of_one_step_are_alone_on_any_thread_and_target) {
  std::vector<float> first;
  for (Isa isa : testing::available_isas()) {
    for (int threads : {1, 2, 3}) {
      for (DeltaNetForm form : {DeltaNetForm::kRecurrent, DeltaNetForm::kChunked}) {
        const auto device = testing::cpu_device(isa, threads);
        Problem p(kShapes[0], 90, 41);
        const SequenceSpan both[] = {p.span(0, 70, 0, 1), p.span(70, 20, -1, -1)};
        const std::vector<float> together = run(*device, p, both, form);
        const int64_t cut = 70 * p.shape.value_heads * p.shape.value_dim;
        const std::vector<float> a = run(*device, p, {both, 1}, form), b = run(*device, p, {both + 1, 1}, form);
        EXPECT_TRUE(testing::same_bits({together.begin(), together.begin() + cut}, {a.begin(), a.begin() + cut}));
        EXPECT_TRUE(testing::same_bits({together.begin() + cut, together.end()}, {b.begin() + cut, b.end()}));
        if (form == DeltaNetForm::kRecurrent) continue;
        if (first.empty()) first = together;
        EXPECT_TRUE(testing::same_bits(together, first));
      }
    }
  }
}

TEST(DeltaRule, garbage_in_one_head_changes_no_bit_of_another) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    for (DeltaNetForm form : {DeltaNetForm::kRecurrent, DeltaNetForm::kChunked}) {
      Problem p({2, 4, 32, 32, 4}, 100, 51);
      const SequenceSpan span = p.span(0, 100, 0, 1);
      const std::vector<float> before = run(*device, p, {&span, 1}, form);
      for (int64_t t = 0; t < 100; ++t) {  // key head 1 serves value heads 2 and 3
        for (int64_t d = 0; d < 32; ++d) {
          p.qkv.view().row(t)[32 + d] = 1e3f, p.qkv.view().row(t)[96 + d] = -1e3f;
          for (int j : {2, 3}) p.qkv.view().row(t)[128 + j * 32 + d] = 1e3f;
        }
        for (int j : {2, 3}) p.a.view().row(t)[j] = 1e3f, p.b.view().row(t)[j] = -1e3f;
      }
      p.a_log[3] = 3, p.dt_bias[3] = 3;
      const std::vector<float> after = run(*device, p, {&span, 1}, form);
      for (int64_t t = 0; t < 100; ++t) {
        for (int64_t c = 0; c < 128; ++c) {
          const auto at = static_cast<size_t>(t * 128 + c);
          if (c < 64) {
            ASSERT_EQ(before[at], after[at]);
          }
          ASSERT_TRUE(std::isfinite(after[at]));
        }
      }
    }
  }
}

TEST(DeltaRule, a_strong_decay_forgets_without_a_nan) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    Problem p({1, 1, 16, 16, 4}, 130, 61);
    for (float& a : p.a.data) a = 1e30f;
    const SequenceSpan span = p.span(0, 130, 0, 1);
    for (DeltaNetForm form : {DeltaNetForm::kRecurrent, DeltaNetForm::kChunked}) {
      std::vector<float> last;
      EXPECT_TRUE(testing::all_near(run(*device, p, {&span, 1}, form),
                                    run(*make_reference_device(), p, {&span, 1}, form), kFormTolerance));
    }
  }
}

TEST(ShortConvolution, is_the_causal_sum_with_its_history) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(make_reference_device());
  for (Isa isa : testing::available_isas()) {
    devices.push_back(testing::cpu_device(isa));
    devices.push_back(testing::cpu_device(isa, 2));
  }
  for (const auto& device : devices) {
    for (int taps : {1, 2, 4, 5}) {
      for (int64_t rows : {1, 2, 3, 4, 40}) {
        for (int in : {-1, 0}) {
          for (int out_slot : {0, 1, -1}) {
            Problem p({2, 6, 40, 33, taps}, rows, 71);  // 358 channels
            const int64_t channels = p.shape.channels();
            const std::vector<float> weight = testing::random_floats(static_cast<size_t>(channels * taps), 72);
            const auto input = [&, before = p.convolution](int64_t t, int64_t c) {
              if (t >= 0) return p.qkv.data[static_cast<size_t>(t * channels + c)];
              return in < 0 ? 0.0f : before[static_cast<size_t>((t + taps - 1) * channels + c)];
            };
            Matrix out(rows, channels);
            const SequenceSpan span = p.span(0, rows, in, out_slot);
            device->short_convolution(p.state(), p.shape, {&span, 1}, weight.data(), p.qkv.view(), out.view());
            for (int64_t c = 0; c < channels; ++c) {
              for (int64_t t = 0; t < rows; ++t) {
                double sum = 0;
                for (int i = 0; i < taps; ++i)
                  sum += double{weight[static_cast<size_t>(c * taps + i)]} * input(t - taps + 1 + i, c);
                ASSERT_NEAR(out.data[static_cast<size_t>(t * channels + c)], sum / (1 + std::exp(-sum)), 4e-6);
              }
              for (int i = 0; i < taps - 1 && out_slot >= 0; ++i) {
                ASSERT_EQ(p.convolution[static_cast<size_t>(out_slot * p.history + i * channels + c)],
                          input(rows - taps + 1 + i, c));
              }
            }
          }
        }
      }
    }
  }
}

TEST(ShortConvolution, pieces_and_threads_change_no_bit) {
  std::vector<float> first;
  for (Isa isa : testing::available_isas()) {
    for (int threads : {1, 3}) {
      const auto device = testing::cpu_device(isa, threads);
      Problem p(kShapes[1], 60, 81);
      const std::vector<float> weight = testing::random_floats(static_cast<size_t>(p.shape.channels() * 4), 82);
      Matrix whole(60, p.shape.channels()), pieces(60, p.shape.channels());
      const SequenceSpan span = p.span(0, 60, 0, 1);
      device->short_convolution(p.state(), p.shape, {&span, 1}, weight.data(), p.qkv.view(), whole.view());
      for (int64_t row = 0; int64_t count : {1, 2, 1, 16, 40}) {
        const SequenceSpan piece = p.span(row, count, row == 0 ? 0 : 2, 2);
        device->short_convolution(p.state(), p.shape, {&piece, 1}, weight.data(), p.qkv.view(), pieces.view());
        row += count;
      }
      EXPECT_TRUE(testing::same_bits(pieces.data, whole.data));
      if (first.empty()) first = whole.data;
      EXPECT_TRUE(testing::same_bits(whole.data, first));
    }
  }
}

}  // namespace
}  // namespace coprime
