// Norms, sums, gates and activations: replicated operations have the reference's bits on every target, the others its
// values, and the activations those of the C library in double.
#include <gtest/gtest.h>

#include <limits>

#include "device/cpu/kernels.h"
#include "device/reference/reference_device.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;

constexpr int64_t kColumns[] = {1, 7, 16, 17, 96, 112, 144, 256, 576, 5120};

// Calls `check(fast, reference)` for every target with one thread and with two.
template <class Check>
void for_each_device(const Check& check) {
  const auto reference = make_reference_device();
  for (Isa isa : testing::available_isas()) {
    for (int threads : {1, 2}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", isa_name(isa), threads));
      check(*testing::cpu_device(isa, threads), *reference);
    }
  }
}

TEST(Replicated, rms_norm_has_the_reference_bits) {
  for_each_device([](Device& fast, Device& reference) {
    for (int64_t columns : kColumns) {
      for (int64_t rows : {1, 5, 64}) {
        Matrix x = testing::random_matrix(rows, columns, 1, 3.0f), y(rows, columns), expected(rows, columns);
        const std::vector<float> weight = testing::random_floats(static_cast<size_t>(columns), 2);
        fast.rms_norm(x.view(), weight.data(), 1e-6f, y.view());
        reference.rms_norm(x.view(), weight.data(), 1e-6f, expected.view());
        ASSERT_TRUE(testing::same_bits(y.data, expected.data)) << rows << " x " << columns;
      }
    }
  });
}

TEST(Replicated, add_norm_and_sum_have_the_reference_bits) {
  for_each_device([](Device& fast, Device& reference) {
    for (int64_t columns : kColumns) {
      for (size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{8}}) {
        std::vector<Matrix> terms;
        for (size_t i = 0; i < count; ++i)
          terms.push_back(testing::random_matrix(5, columns, static_cast<uint32_t>(i), 1e3f));
        std::vector<View> views;
        for (Matrix& term : terms) views.push_back(term.view());
        const std::vector<float> weight = testing::random_floats(static_cast<size_t>(columns), 9);
        for (const float* norm : {weight.data(), static_cast<const float*>(nullptr)}) {
          Matrix a = testing::random_matrix(5, columns, 10), b = a, a_normed(5, columns), b_normed(5, columns);
          fast.add_norm(views, a.view(), norm, 1e-5f, a_normed.view());
          reference.add_norm(views, b.view(), norm, 1e-5f, b_normed.view());
          ASSERT_TRUE(testing::same_bits(a.data, b.data)) << columns << ", " << count;
          ASSERT_TRUE(testing::same_bits(a_normed.data, b_normed.data)) << columns << ", " << count;
        }
        if (count == 0) continue;
        Matrix a(5, columns), b(5, columns);
        fast.sum(views, a.view());
        reference.sum(views, b.view());
        ASSERT_TRUE(testing::same_bits(a.data, b.data)) << columns << ", " << count;
      }
    }
  });
}

TEST(Replicated, terms_are_added_in_their_order) {
  for_each_device([](Device& fast, Device&) {
    Matrix a(1, 20), b(1, 20), c(1, 20), out(1, 20);
    std::fill(a.data.begin(), a.data.end(), 1e8f);
    std::fill(b.data.begin(), b.data.end(), -1e8f);
    std::fill(c.data.begin(), c.data.end(), 1.0f);
    const View terms[] = {a.view(), b.view(), c.view()};
    fast.sum(terms, out.view());
    EXPECT_EQ(out.data, std::vector<float>(20, 1.0f));
    const View others[] = {c.view(), a.view(), b.view()};
    fast.sum(others, out.view());
    EXPECT_EQ(out.data, std::vector<float>(20, 0.0f));
  });
}

TEST(Replicated, zero_writes_the_rows_and_nothing_between_them) {
  for_each_device([](Device& fast, Device& reference) {
    for (Device* device : {&fast, &reference}) {
      Matrix x(3, 5, 2);
      std::fill(x.data.begin(), x.data.end(), -0.5f);
      device->zero(x.view());
      for (size_t i = 0; i < x.data.size(); ++i) EXPECT_EQ(x.data[i], i % 7 < 5 ? 0.0f : -0.5f);
      EXPECT_FALSE(std::signbit(x.data[0]));
    }
  });
}

TEST(Replicated, embed_has_the_reference_bits) {
  for_each_device([](Device& fast, Device& reference) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Weight table = testing::packed(fast, type, 33, 97, testing::random_floats(33 * 97, 1, 1.0f, type));
      const std::vector<int32_t> ids = {100, 132, 99, 133, 117, 100};
      Matrix a(6, 97), b(6, 97);
      fast.embed(table, ids, 100, a.view());
      reference.embed(table, ids, 100, b.view());
      ASSERT_TRUE(testing::same_bits(a.data, b.data));
    }
  });
}

TEST(Rows, norm_rope_has_the_reference_bits) {
  for_each_device([](Device& fast, Device& reference) {
    for (int dim : {16, 24, 128, 256}) {
      for (int half : {0, 4, 8, dim / 2}) {
        Matrix a = testing::random_matrix(9, 3 * dim, 1), b = a;
        Matrix cosines = testing::random_matrix(9, half, 2), sines = testing::random_matrix(9, half, 3);
        const std::vector<float> weight = testing::random_floats(static_cast<size_t>(dim), 4);
        for (const float* norm : {weight.data(), static_cast<const float*>(nullptr)}) {
          fast.norm_rope(a.heads(3), norm, 1e-6f, cosines.view(), sines.view());
          reference.norm_rope(b.heads(3), norm, 1e-6f, cosines.view(), sines.view());
          ASSERT_TRUE(testing::same_bits(a.data, b.data)) << dim << ", " << half;
        }
      }
    }
  });
}

TEST(Rows, rotation_keeps_the_length_and_turns_the_right_way) {
  for_each_device([](Device& fast, Device&) {
    Matrix x(1, 4, {1, 0, 0, 0}), cosine(1, 2, {0, 1}), sine(1, 2, {1, 0});  // a quarter turn of (x0, x2)
    fast.norm_rope(x.heads(1), nullptr, 0, cosine.view(), sine.view());
    EXPECT_EQ(x.data, (std::vector<float>{0, 0, 1, 0}));
  });
}

TEST(Rows, gates_agree_with_the_reference) {
  for_each_device([](Device& fast, Device& reference) {
    for (int64_t columns : {3, 96, 546}) {
      Matrix a = testing::random_matrix(33, columns, 1, 3.0f), b = a, up = testing::random_matrix(33, columns, 2, 3.0f);
      fast.swiglu(a.view(), up.view());
      reference.swiglu(b.view(), up.view());
      EXPECT_TRUE(testing::all_near(a.data, b.data, 1e-30, 5e-7));

      Matrix gates = testing::random_matrix(33, 2 * columns, 3, 4.0f);  // [query | gate] a head: three heads
      const HeadsView gate{gates.data.data() + columns / 3, 33, 2 * columns, 3, static_cast<int>(2 * columns / 3),
                           static_cast<int>(columns / 3)};
      fast.sigmoid_gate(a.view(), gate);
      reference.sigmoid_gate(b.view(), gate);
      EXPECT_TRUE(testing::all_near(a.data, b.data, 1e-30, 1e-6));
    }
    for (int dim : {8, 16, 24, 128}) {
      Matrix a = testing::random_matrix(7, 3 * dim, 4), b = a, gate = testing::random_matrix(7, 3 * dim, 5, 3.0f);
      const std::vector<float> weight = testing::random_floats(static_cast<size_t>(dim), 6);
      fast.gated_norm(a.view(), gate.view(), dim, weight.data(), 1e-6f);
      reference.gated_norm(b.view(), gate.view(), dim, weight.data(), 1e-6f);
      EXPECT_TRUE(testing::all_near(a.data, b.data, 1e-30, 6e-7)) << dim;
    }
  });
}

TEST(Rows, every_target_gives_the_same_bits) {
  std::vector<float> first;
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    Matrix a = testing::random_matrix(5, 200, 1, 5.0f), b = testing::random_matrix(5, 200, 2);
    device->swiglu(a.view(), b.view());
    device->gated_norm(a.view(), b.view(), 40, b.data.data(), 1e-6f);
    device->sigmoid_gate(a.view(), b.heads(5));
    if (first.empty()) first = a.data;
    EXPECT_TRUE(testing::same_bits(a.data, first));
  }
}

// ---- activations

using Activation = void (*)(const float*, float*, int64_t);

std::vector<float> sweep() {
  std::vector<float> x;
  for (double v = -110; v <= 110; v += 0.00731) x.push_back(static_cast<float>(v));
  for (double v = 1e-30; v < 1e31; v *= 1.37) {
    x.push_back(static_cast<float>(v));
    x.push_back(static_cast<float>(-v));
  }
  x.push_back(0.0f);
  x.push_back(-0.0f);
  return x;
}

// Within 3e-7 of `expected`, or of `smallest` where e^-x overflows.
void expect_close(Activation fast, double (*expected)(double), double smallest, const char* name) {
  const std::vector<float> x = sweep();
  std::vector<float> y(x.size());
  fast(x.data(), y.data(), static_cast<int64_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double wanted = expected(x[i]);
    if (wanted > std::numeric_limits<float>::max()) {
      ASSERT_TRUE(std::isinf(y[i]) || y[i] > 3.4e38f) << name << "(" << x[i] << ") = " << y[i];
    } else {
      ASSERT_NEAR(y[i], wanted, 3e-7 * std::abs(wanted) + smallest) << name << "(" << x[i] << ")";
    }
  }
}

TEST(Activations, are_those_of_the_c_library_to_a_few_units_of_the_last_place) {
  for (Isa isa : testing::available_isas()) {
    const RowKernels& rows = *row_kernels()[static_cast<size_t>(select_kernel(row_kernels(), {isa, DType::kF32}))].fn;
    expect_close(
        rows.exp, [](double x) { return std::exp(x); }, 1e-44, "exp");
    expect_close(
        rows.sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 1e-38, "sigmoid");
    expect_close(
        rows.silu, [](double x) { return x / (1 + std::exp(-x)); }, 3e-37, "silu");
    expect_close(
        rows.softplus, [](double x) { return x > 40 ? x : std::log1p(std::exp(x)); }, 1e-44, "softplus");
  }
}

TEST(Activations, are_right_at_the_ends) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (Isa isa : testing::available_isas()) {
    const RowKernels& rows = *row_kernels()[static_cast<size_t>(select_kernel(row_kernels(), {isa, DType::kF32}))].fn;
    const float x[] = {-kInfinity, -3e38f, 0, 3e38f, kInfinity, std::numeric_limits<float>::quiet_NaN()};
    float y[6];
    const auto expect = [&](Activation f, std::vector<float> wanted) {
      f(x, y, 6);
      for (size_t i = 0; i < 5; ++i) EXPECT_EQ(y[i], wanted[i]) << i;
      EXPECT_TRUE(std::isnan(y[5]));
    };
    expect(rows.exp, {0, 0, 1, kInfinity, kInfinity});
    expect(rows.sigmoid, {0, 0, 0.5f, 1, 1});
    expect(rows.silu, {0, 0, 0, 3e38f, kInfinity});
    expect(rows.softplus, {0, 0, 0.693147182f, 3e38f, kInfinity});
  }
}

// ---- candidates

TEST(TopK, gives_the_largest_with_ties_by_id) {
  for_each_device([](Device& fast, Device& reference) {
    for (size_t size : {size_t{1}, size_t{15}, size_t{16}, size_t{1000}, size_t{20000}}) {
      for (size_t k : {size_t{1}, size_t{2}, size_t{20}, size_t{3000}}) {
        std::vector<float> logits = testing::random_floats(size, static_cast<uint32_t>(size + k));
        for (float& logit : logits) logit = std::round(logit * 50);  // many ties
        std::vector<Candidate> order(size);
        for (size_t i = 0; i < size; ++i) order[i] = {logits[i], 500 + static_cast<int32_t>(i)};
        std::stable_sort(order.begin(), order.end(),
                         [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
        for (Device* device : {&fast, &reference}) {
          std::vector<Candidate> best(k);
          ASSERT_EQ(device->top_k(logits, 500, best), static_cast<int>(std::min(size, k)));
          for (size_t i = 0; i < std::min(size, k); ++i) {
            ASSERT_EQ(best[i].id, order[i].id);
            ASSERT_EQ(best[i].logit, order[i].logit);
          }
        }
      }
    }
  });
}

TEST(TopK, takes_no_nan_while_there_is_a_number) {
  for_each_device([](Device& fast, Device&) {
    std::vector<float> logits(100, std::numeric_limits<float>::quiet_NaN());
    logits[40] = -5, logits[70] = -std::numeric_limits<float>::infinity();
    std::vector<Candidate> best(1);
    ASSERT_EQ(fast.top_k(logits, 0, best), 1);
    EXPECT_EQ(best[0].id, 40);
    EXPECT_EQ(fast.top_k({}, 0, best), 0);
    EXPECT_EQ(fast.top_k(logits, 0, {}), 0);
  });
}

}  // namespace
}  // namespace coprime
