#include "state/cache.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coprime {
namespace {

CacheShape small() {
  return {.attention_layers = 3,
          .kv_heads = 2,
          .head_dim = 16,
          .pages = 5,
          .linear_layers = 2,
          .linear = {.key_heads = 2, .value_heads = 6, .key_dim = 8, .value_dim = 4, .taps = 4},
          .slots = 3,
          .sequences = 2};
}

TEST(Cache, layers_and_pages_do_not_overlap) {
  const Cache cache(small());
  std::vector<std::byte*> starts;
  for (int layer = 0; layer < 3; ++layer) {
    for (int32_t page = 0; page < 5; ++page) {
      for (int head = 0; head < 2; ++head) {
        starts.push_back(cache.kv(layer).keys(page, head));
        starts.push_back(cache.kv(layer).values(page, head));
      }
    }
  }
  std::sort(starts.begin(), starts.end());
  constexpr ptrdiff_t kHeadBytes = 16 * kPageTokens * 4;
  for (size_t i = 1; i < starts.size(); ++i) EXPECT_GE(starts[i] - starts[i - 1], kHeadBytes);
  EXPECT_EQ(starts.back() - starts.front() + kHeadBytes, cache.shape().kv_bytes());
}

TEST(Cache, states_start_at_zero_and_do_not_overlap) {
  const Cache cache(small());
  const StateView first = cache.state(0), second = cache.state(1);
  EXPECT_EQ(second.recurrent - first.recurrent, 3 * first.recurrent_stride);
  EXPECT_EQ(second.convolution - first.convolution, 3 * first.convolution_stride);
  EXPECT_EQ(first.recurrent_stride, 6 * 8 * 4);
  EXPECT_EQ(first.convolution_stride, 3 * (16 + 16 + 24));
  for (int64_t i = 0; i < first.recurrent_stride; ++i) EXPECT_EQ(second.recurrent[i], 0.0f);
}

TEST(Cache, a_page_list_grows_and_is_rewritten_from_an_index_on) {
  Cache cache(small());
  cache.set_pages(1, 0, std::array{4, 2});
  cache.set_pages(1, 2, std::array{0});
  EXPECT_EQ(cache.pages(1, 129).size(), 3u);
  EXPECT_EQ(cache.pages(1, 128).size(), 2u);
  cache.set_pages(1, 1, std::array{3});
  EXPECT_EQ(cache.pages(1, 65)[1], 3);
  EXPECT_THROW(cache.pages(1, 129), Error);
}

TEST(Cache, pages_slots_and_sequences_outside_the_pool_are_refused) {
  Cache cache(small());
  EXPECT_THROW(cache.set_pages(2, 0, std::array{0}), Error);
  EXPECT_THROW(cache.set_pages(0, 0, std::array{5}), Error);
  EXPECT_THROW(cache.set_pages(0, 0, std::array{-1}), Error);
  EXPECT_THROW(cache.set_pages(0, 1, std::array{0}), Error);  // a gap
  EXPECT_THROW(cache.set_pages(0, 0, std::array{0, 1, 2, 3, 4, 0}), Error);
  EXPECT_THROW(cache.check_slot(3), Error);
  EXPECT_NO_THROW(cache.check_slot(-1));
}

}  // namespace
}  // namespace coprime
