#include <gtest/gtest.h>

#include "base/error.h"
#include "tensor/buffer.h"
#include "tensor/sequence.h"
#include "tensor/view.h"
#include "tensor/weight.h"

namespace coprime {
namespace {

TEST(Buffer, is_zero_and_aligned_and_moves_without_copying) {
  Buffer buffer(10'000'000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  for (size_t i = 0; i < buffer.size(); i += 4096) EXPECT_EQ(buffer.data()[i], std::byte{0});
  std::byte* data = buffer.data();
  Buffer other = std::move(buffer);
  EXPECT_EQ(other.data(), data);
  EXPECT_EQ(buffer.data(), nullptr);  // NOLINT: what is left behind is empty
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

TEST(Buffer, that_no_system_has_is_an_error_and_no_crash) { EXPECT_THROW(Buffer(size_t{1} << 60), Error); }

TEST(View, ranges_address_their_parts) {
  std::array<float, 12> data{};
  const View view = make_view(data.data(), 3, 4);
  EXPECT_EQ(view.row_range(1, 2).row(1), data.data() + 8);
  const View columns = view.column_range(1, 2);
  EXPECT_EQ(columns.row(2), data.data() + 9);
  EXPECT_EQ(columns.stride, 4);
}

TEST(ViewDeathTest, ranges_outside_are_a_broken_invariant) {
  std::array<float, 12> data{};
  const View view = make_view(data.data(), 3, 4);
  EXPECT_DEATH(view.row_range(2, 2), "broken invariant");
  EXPECT_DEATH(view.column_range(0, 5), "broken invariant");
}

TEST(KvView, a_head_s_values_follow_its_keys_with_their_scales) {
  for (const auto& [type, half] :
       {std::pair{DType::kBF16, 16 * kPageTokens * 2}, std::pair{DType::kF8E4M3, 16 * kPageTokens + kPageTokens * 4}}) {
    Buffer pages(size_t{2} * 2 * 3 * 16 * kPageTokens * 2);
    const KvView kv{pages.data(), type, 3, 16};
    EXPECT_EQ(kv.values(0, 0) - kv.keys(0, 0), half);
    EXPECT_EQ(kv.keys(0, 1) - kv.values(0, 0), half);
    EXPECT_EQ(kv.keys(1, 0) - kv.values(0, 2), half);
    EXPECT_EQ(kv.page_bytes(), kv.keys(1, 0) - kv.keys(0, 0));
  }
}

TEST(Weight, finds_its_components_by_role) {
  Weight weight;
  weight.components.push_back({.role = ComponentRole::kValues});
  EXPECT_EQ(weight.find(ComponentRole::kBias), nullptr);
  weight.components.push_back({.role = ComponentRole::kBias});
  EXPECT_EQ(weight.find(ComponentRole::kBias), &weight.components[1]);
}

TEST(BufferArena, gives_zeroed_memory_side_by_side_that_outlives_it) {
  Buffer kept;
  {
    BufferArena arena;
    Buffer one = arena.take(100);
    const Buffer two = arena.take(64), large = arena.take(size_t{40} << 20), three = arena.take(1);
    EXPECT_EQ(two.data() - one.data(), 128);
    EXPECT_EQ(three.data() - two.data(), 64);
    EXPECT_EQ(large.size(), size_t{40} << 20);
    for (int i = 0; i < 10; ++i) {  // more than one mapping holds
      const Buffer next = arena.take(size_t{15} << 20);
      EXPECT_EQ(next.data()[next.size() - 1], std::byte{0});
      next.data()[next.size() - 1] = std::byte{1};
    }
    EXPECT_EQ(arena.take(0).size(), 0u);
    one.data()[99] = std::byte{7};
    kept = std::move(one);
  }
  EXPECT_EQ(kept.size(), 100u);
  EXPECT_EQ(kept.data()[99], std::byte{7});
  EXPECT_EQ(kept.data()[0], std::byte{0});
}

}  // namespace
}  // namespace coprime
