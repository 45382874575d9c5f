// attend() against double arithmetic over all tokens at once, against the reference, and its claims of independence,
// bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/small_floats.h"
#include "device/kv_pages.h"
#include "device/reference/reference_device.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;

// One sequence's keys and values, stored through the device in pages that lie out of order; other pages hold NaNs.
struct Sequence {
  Sequence(Device& device, DType type, int num_kv_heads, int num_head_dim, int64_t tokens, uint32_t seed,
           float size = 1.0f)
      : kv_heads(num_kv_heads),
        head_dim(num_head_dim),
        keys(testing::random_matrix(tokens, kv_heads * head_dim, seed, size)),
        values(testing::random_matrix(tokens, kv_heads * head_dim, seed + 1)) {
    const int64_t num_pages = (tokens + kPageTokens - 1) / kPageTokens;
    kv.type = type;
    kv.kv_heads = kv_heads;
    kv.head_dim = head_dim;
    memory = Buffer(static_cast<size_t>((num_pages + 2) * kv.page_bytes()));
    std::fill_n(memory.data(), memory.size(), std::byte{0xff});  // NaN in every type
    kv.pages = memory.data();
    for (int64_t i = 0; i < num_pages; ++i) pages.push_back(static_cast<int32_t>(num_pages - i));
    SequenceSpan all;
    all.num_rows = tokens;
    all.pages = pages;
    device.store_kv(kv, {&all, 1}, keys.heads(kv_heads), values.heads(kv_heads));
  }
  SequenceSpan span(int64_t first_row, int64_t start, int64_t rows) const {
    SequenceSpan made;
    made.first_row = first_row;
    made.start = start;
    made.num_rows = rows;
    made.pages = pages;
    return made;
  }
  int kv_heads, head_dim;
  Matrix keys, values;
  KvView kv;
  Buffer memory;
  std::vector<int32_t> pages;
};

constexpr float kScale = 0.2f;
constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};

// What pages of the type hold of elements [first, first + count) of a token, which are one head's.
std::vector<double> held(DType type, Matrix& m, int64_t token, int64_t first, int64_t count) {
  std::vector<double> values;
  const float* x = m.view().row(token) + first;
  float scale = 1;
  if (type == DType::kF8E4M3) {
    for (int64_t i = scale = 0; i < count; ++i) scale = std::max(scale, std::fabs(x[i]) / 448);
  }
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(type == DType::kF8E4M3 ? double{e4m3_to_f32(f32_to_e4m3(x[i] * (1 / scale)))} * double{scale}
                                            : double{testing::round_to(type, x[i])});
  }
  return values;
}

std::vector<float> attend(Device& device, const Sequence& s, Matrix& q, int heads,
                          std::span<const SequenceSpan> spans) {
  Matrix out(q.rows, q.columns);
  std::fill(out.data.begin(), out.data.end(), 77.0f);
  device.attend(s.kv, spans, q.heads(heads), kScale, out.view());
  return out.data;
}

// The softmax of all scores at once, in double.
std::vector<float> expected_attention(Sequence& s, Matrix& q, int heads, int64_t start) {
  Matrix out(q.rows, q.columns);
  const int dim = s.head_dim;
  for (int64_t r = 0; r < q.rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      const int kv_head = h / (heads / s.kv_heads);
      std::vector<double> scores;
      for (int64_t t = 0; t <= start + r; ++t) {
        const std::vector<double> key = held(s.kv.type, s.keys, t, int64_t{kv_head} * dim, dim);
        scores.push_back(double{kScale} * std::inner_product(key.begin(), key.end(), q.heads(heads).head(r, h), 0.0));
      }
      const double highest = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - highest);
      std::vector<double> sums(static_cast<size_t>(dim));
      for (size_t t = 0; t < scores.size(); ++t) {
        const std::vector<double> value =
            held(s.kv.type, s.values, static_cast<int64_t>(t), int64_t{kv_head} * dim, dim);
        for (size_t d = 0; d < sums.size(); ++d) sums[d] += scores[t] / total * value[d];
      }
      std::ranges::copy(sums, out.heads(heads).head(r, h));
    }
  }
  return out.data;
}

TEST(Attention, is_the_softmax_of_all_tokens) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(make_reference_device());
  for (Isa isa : testing::available_isas()) devices.push_back(testing::cpu_device(isa, 2));
  for (const auto& device : devices) {
    for (DType type : kTypes) {
      for (auto [kv_heads, group, dim] :
           {std::tuple{2, 3, 16}, {1, 1, 32}, {2, 6, 64}, {1, 2, 128}, {1, 7, 20}, {3, 1, 5}}) {
        for (auto [start, rows] : {std::pair{0, 1}, {0, 70}, {63, 1}, {64, 1}, {150, 3}, {250, 17}, {600, 1}}) {
          Sequence s(*device, type, kv_heads, dim, start + rows, 3);
          Matrix q = testing::random_matrix(rows, kv_heads * group * dim, 5);
          const SequenceSpan span = s.span(0, start, rows);
          ASSERT_TRUE(testing::all_near(attend(*device, s, q, kv_heads * group, {&span, 1}),
                                        expected_attention(s, q, kv_heads * group, start), 6e-6))
              << device->description() << " " << dtype_name(type) << " " << kv_heads << " x " << group << " x " << dim
              << ", " << start << "+" << rows;
        }
      }
    }
  }
}

TEST(Attention, survives_scores_far_apart) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    Sequence s(*device, DType::kF32, 1, 32, 200, 3, 50.0f);
    Matrix q = testing::random_matrix(200, 32, 5, 50.0f);
    const SequenceSpan span = s.span(0, 0, 200);
    EXPECT_TRUE(testing::all_near(attend(*device, s, q, 1, {&span, 1}), expected_attention(s, q, 1, 0), 5e-4));
  }
}

// Of more tokens than a partial holds; a step of few rows shares its partials out to the threads.
TEST(Attention, no_chunking_batching_or_thread_count_changes_a_bit_nor_does_the_target) {
  constexpr int kRows = 300, kHeads = 6;
  for (DType type : kTypes) {
    std::vector<float> whole;
    for (Isa isa : testing::available_isas()) {
      for (int threads : {1, 2, 3}) {
        const auto device = testing::cpu_device(isa, threads);
        const Sequence s(*device, type, 2, 48, kRows, 3);
        Matrix q = testing::random_matrix(kRows, kHeads * 48, 5);
        const SequenceSpan all = s.span(0, 0, kRows);
        const std::vector<float> once = attend(*device, s, q, kHeads, {&all, 1});
        if (whole.empty()) whole = once;
        ASSERT_TRUE(testing::same_bits(once, whole));
        for (std::vector<int64_t> pieces :
             {std::vector<int64_t>{1, 62, 2, 64, 21, 150}, {300}, {150, 150}, {64, 64, 172}}) {
          std::vector<SequenceSpan> spans;  // as many spans of one step
          for (int64_t row = 0; int64_t piece : pieces) {
            spans.push_back(s.span(row, row, piece));
            row += piece;
          }
          ASSERT_TRUE(testing::same_bits(attend(*device, s, q, kHeads, spans), whole));
        }
        for (int64_t rows : {1, 5}) {  // a step
          for (int64_t row = 0; row < kRows; row += rows) {
            const auto from = whole.begin() + row * q.columns, to = from + rows * q.columns;
            Matrix few(rows, q.columns, {q.view().row(row), q.view().row(row) + rows * q.columns});
            const SequenceSpan span = s.span(0, row, rows);
            ASSERT_TRUE(testing::same_bits(attend(*device, s, few, kHeads, {&span, 1}), {from, to})) << row;
          }
        }
      }
    }
  }
}

// Threads share one step's partials out where it has few rows; sequences of a batch are of different lengths.
TEST(Attention, a_batch_of_contexts_shared_out_gives_each_rows_own_bits) {
  const std::vector<int64_t> lengths{5, 700, 256, 257};
  for (Isa isa : testing::available_isas()) {
    const auto alone = testing::cpu_device(isa, 1), shared = testing::cpu_device(isa, 3);
    const Sequence s(*alone, DType::kF32, 1, 40, 700, 3);
    Matrix q = testing::random_matrix(static_cast<int64_t>(lengths.size()), 2 * 40, 5);
    std::vector<SequenceSpan> spans;
    for (size_t i = 0; i < lengths.size(); ++i) spans.push_back(s.span(static_cast<int64_t>(i), lengths[i] - 1, 1));
    EXPECT_TRUE(testing::same_bits(attend(*shared, s, q, 2, spans), attend(*alone, s, q, 2, spans)));
  }
}

TEST(Attention, a_token_that_is_not_finite_spoils_fp8_only_for_those_who_see_it) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    Sequence s(*device, DType::kF8E4M3, 1, 32, 80, 3);
    s.values.view().row(70)[3] = std::numeric_limits<float>::infinity();
    const SequenceSpan span = s.span(0, 0, 80);
    device->store_kv(s.kv, {&span, 1}, s.keys.heads(1), s.values.heads(1));
    Matrix q = testing::random_matrix(80, 32, 5);
    const std::vector<float> out = attend(*device, s, q, 1, {&span, 1});
    for (int64_t r = 0; r < 80; ++r) EXPECT_EQ(std::isfinite(out[static_cast<size_t>(r * 32 + 3)]), r < 70) << r;
  }
}

TEST(Attention, garbage_in_one_head_changes_no_bit_of_another) {
  for (Isa isa : testing::available_isas()) {
    const auto device = testing::cpu_device(isa);
    Sequence clean(*device, DType::kF32, 2, 32, 100, 3);
    Matrix q = testing::random_matrix(100, 4 * 32, 5);
    const SequenceSpan span = clean.span(0, 0, 100);
    const std::vector<float> before = attend(*device, clean, q, 4, {&span, 1});
    Matrix poisoned = q;
    for (int64_t r = 0; r < 100; ++r) {
      for (int64_t d = 0; d < 32; ++d) {
        poisoned.heads(4).head(r, 3)[d] = 1e3f;                    // one query head
        clean.keys.heads(2).head(r, 1)[d] = d % 2 ? 1e3f : -1e3f;  // the KV head of heads 2 and 3
        clean.values.heads(2).head(r, 1)[d] = 1e3f;
      }
    }
    device->store_kv(clean.kv, {&span, 1}, clean.keys.heads(2), clean.values.heads(2));
    const std::vector<float> after = attend(*device, clean, poisoned, 4, {&span, 1});
    for (int64_t r = 0; r < 100; ++r) {
      for (int64_t c = 0; c < 64; ++c)
        ASSERT_EQ(before[static_cast<size_t>(r * 128 + c)], after[static_cast<size_t>(r * 128 + c)]);
    }
  }
}

TEST(KvPages, hold_keys_transposed_and_values_by_row) {
  for (DType type : kTypes) {
    const auto device = testing::cpu_device(Isa::kAvx512);
    Sequence s(*device, type, 2, 10, 130, 3);
    for (int64_t t = 0; t < 130; ++t) {
      for (int h = 0; h < 2; ++h) {
        const std::vector<double> key = held(type, s.keys, t, h * 10, 10), value = held(type, s.values, t, h * 10, 10);
        const int32_t page = s.pages[static_cast<size_t>(t / 64)];
        std::byte *const keys = s.kv.keys(page, h), *const values = s.kv.values(page, h);
        const auto scale = [&](std::byte* half) { return s.kv.scaled() ? double{s.kv.scales(half)[t % 64]} : 1.0; };
        for (int64_t d = 0; d < 10; ++d) {
          const auto at = static_cast<size_t>(d);
          ASSERT_EQ(page_value(type, keys, d * 64 + t % 64) * scale(keys), key[at]);
          ASSERT_EQ(page_value(type, values, t % 64 * 10 + d) * scale(values), value[at]);
        }
      }
    }
  }
}

// A token's elements are within 1/16 of themselves, or within 2^-10 of the largest's 1/448 where they are tiny.
TEST(KvPages, fp8_keeps_each_token_to_three_bits_whatever_its_size) {
  const auto device = testing::cpu_device(Isa::kAvx512);
  for (float size : {1e-20f, 1e-3f, 1.0f, 1e20f}) {
    const Sequence s(*device, DType::kF8E4M3, 1, 64, 64, 3, size);
    std::byte* const keys = s.kv.keys(s.pages[0], 0);
    for (int64_t t = 0; t < 64; ++t) {
      const float scale = s.kv.scales(keys)[t];
      for (int64_t d = 0; d < 64; ++d) {
        const float x = s.keys.data[static_cast<size_t>(t * 64 + d)];
        ASSERT_NEAR(page_value(DType::kF8E4M3, keys, d * 64 + t) * scale, x,
                    std::max(std::fabs(x) / 16, scale * 0x1p-10f) * 1.0001f);
      }
    }
  }
}

TEST(KvPages, an_fp8_token_of_64_elements_takes_68_bytes_for_its_key_and_for_its_value) {
  const KvView kv{nullptr, DType::kF8E4M3, 3, 64};
  EXPECT_EQ(kv.page_bytes(), kPageTokens * 3 * 2 * 68);
}

}  // namespace
}  // namespace coprime
