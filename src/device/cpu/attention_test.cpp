// attend() against double arithmetic over all tokens at once, against the reference, and its claims of independence,
// bit by bit.
#include <gtest/gtest.h>

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
    memory = Buffer(static_cast<size_t>((num_pages + 2) * 2 * kv.elements_per_half() * dtype_bytes(type)));
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

std::vector<float> attend(Device& device, const Sequence& s, Matrix& q, int heads,
                          std::span<const SequenceSpan> spans) {
  Matrix out(q.rows, q.columns);
  std::fill(out.data.begin(), out.data.end(), 77.0f);
  device.attend(s.kv, spans, q.heads(heads), kScale, out.view());
  return out.data;
}

// The softmax of all scores at once, in double.
std::vector<float> expected_attention(const Sequence& s, Matrix& q, int heads, int64_t start) {
  Matrix out(q.rows, q.columns);
  const int dim = s.head_dim;
  for (int64_t r = 0; r < q.rows; ++r) {
    for (int h = 0; h < heads; ++h) {
      const int kv_head = h / (heads / s.kv_heads);
      const auto stored = [&](const Matrix& m, int64_t t, int64_t d) {
        return double{testing::round_to(s.kv.type, m.data[static_cast<size_t>(t * m.columns + kv_head * dim + d)])};
      };
      std::vector<double> scores;
      for (int64_t t = 0; t <= start + r; ++t) {
        double sum = 0;
        for (int64_t d = 0; d < dim; ++d) sum += q.heads(heads).head(r, h)[d] * stored(s.keys, t, d);
        scores.push_back(sum * double{kScale});
      }
      const double highest = *std::max_element(scores.begin(), scores.end());
      double total = 0;
      for (double& score : scores) total += score = std::exp(score - highest);
      for (int64_t d = 0; d < dim; ++d) {
        double sum = 0;
        for (size_t t = 0; t < scores.size(); ++t)
          sum += scores[t] / total * stored(s.values, static_cast<int64_t>(t), d);
        out.heads(heads).head(r, h)[d] = static_cast<float>(sum);
      }
    }
  }
  return out.data;
}

TEST(Attention, is_the_softmax_of_all_tokens) {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(make_reference_device());
  for (Isa isa : testing::available_isas()) devices.push_back(testing::cpu_device(isa, 2));
  for (const auto& device : devices) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
      for (auto [kv_heads, group, dim] :
           {std::tuple{2, 3, 16}, {1, 1, 32}, {2, 6, 64}, {1, 2, 128}, {1, 7, 20}, {3, 1, 5}}) {
        for (auto [start, rows] : {std::pair{0, 1}, {0, 70}, {63, 1}, {64, 1}, {150, 3}, {120, 17}}) {
          const Sequence s(*device, type, kv_heads, dim, start + rows, 3);
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
    const Sequence s(*device, DType::kF32, 1, 32, 200, 3, 50.0f);
    Matrix q = testing::random_matrix(200, 32, 5, 50.0f);
    const SequenceSpan span = s.span(0, 0, 200);
    EXPECT_TRUE(testing::all_near(attend(*device, s, q, 1, {&span, 1}), expected_attention(s, q, 1, 0), 5e-4));
  }
}

TEST(Attention, no_chunking_batching_or_thread_count_changes_a_bit_nor_does_the_target) {
  constexpr int kRows = 150, kHeads = 6;
  std::vector<float> whole;
  for (Isa isa : testing::available_isas()) {
    for (int threads : {1, 2, 3}) {
      const auto device = testing::cpu_device(isa, threads);
      const Sequence s(*device, DType::kF32, 2, 48, kRows, 3);
      Matrix q = testing::random_matrix(kRows, kHeads * 48, 5);
      const SequenceSpan all = s.span(0, 0, kRows);
      const std::vector<float> once = attend(*device, s, q, kHeads, {&all, 1});
      if (whole.empty()) whole = once;
      ASSERT_TRUE(testing::same_bits(once, whole));
      for (std::vector<int64_t> pieces : {std::vector<int64_t>{1, 62, 2, 64, 21}, {150}, {75, 75}, {64, 64, 22}}) {
        std::vector<SequenceSpan> spans;  // as many spans of one step
        for (int64_t row = 0; int64_t piece : pieces) {
          spans.push_back(s.span(row, row, piece));
          row += piece;
        }
        ASSERT_TRUE(testing::same_bits(attend(*device, s, q, kHeads, spans), whole));
      }
      for (int64_t row = 0; row < kRows; ++row) {  // one row a step
        Matrix one(1, q.columns, {q.view().row(row), q.view().row(row) + q.columns});
        const SequenceSpan span = s.span(0, row, 1);
        const std::vector<float> alone = attend(*device, s, one, kHeads, {&span, 1});
        ASSERT_TRUE(testing::same_bits(alone, {whole.begin() + row * q.columns, whole.begin() + (row + 1) * q.columns}))
            << row;
      }
    }
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
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto device = testing::cpu_device(Isa::kAvx512);
    const Sequence s(*device, type, 2, 10, 130, 3);
    for (int64_t t = 0; t < 130; ++t) {
      for (int h = 0; h < 2; ++h) {
        for (int64_t d = 0; d < 10; ++d) {
          const int32_t page = s.pages[static_cast<size_t>(t / 64)];
          const float key = s.keys.data[static_cast<size_t>(t * 20 + h * 10 + d)];
          const float value = s.values.data[static_cast<size_t>(t * 20 + h * 10 + d)];
          ASSERT_EQ(page_value(type, s.kv.keys(page, h), d * 64 + t % 64), testing::round_to(type, key));
          ASSERT_EQ(page_value(type, s.kv.values(page, h), t % 64 * 10 + d), testing::round_to(type, value));
        }
      }
    }
  }
}

}  // namespace
}  // namespace coprime
