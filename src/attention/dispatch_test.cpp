#include "attention/dispatch.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coprime::attention {
namespace {

DecodeCase request_of(int64_t context, int cubes = 4) {
  DecodeCase request;
  request.largest_context = context;
  for (int c = cubes; c > 1; c /= 2) request.degrees.push_back({c, 8, 500});
  request.in_cube = {1, 8, 200};
  request.one_shot_keys = 1000;
  return request;
}

DecodeLayout layout_of(const DecodeCase& request) { return choose_decode(request).layout; }

TEST(Dispatch, a_context_of_256K_is_long_on_four_cubes_and_one_token_less_is_short) {
  EXPECT_EQ(layout_of(request_of((256 << 10) - 1)), DecodeLayout::kShort);
  EXPECT_EQ(layout_of(request_of(256 << 10)), DecodeLayout::kLong);
}

TEST(Dispatch, goes_by_tokens_a_rank_so_that_eight_cubes_are_long_from_512K_on) {
  EXPECT_EQ(layout_of(request_of((512 << 10) - 1, 8)), DecodeLayout::kShort);
  EXPECT_EQ(layout_of(request_of(512 << 10, 8)), DecodeLayout::kLong);
  EXPECT_EQ(choose_decode(request_of(512 << 10, 8)).rank_keys, 8192);
}

TEST(Dispatch, the_threshold_is_a_knob) {
  DecodeCase request = request_of(8191);
  request.threshold = 8192;
  EXPECT_EQ(layout_of(request), DecodeLayout::kShort);
  request.largest_context = 8192;
  EXPECT_EQ(layout_of(request), DecodeLayout::kLong);
}

// 8 PEs and a reduction of 200 keys: S keys on one PE against ceil(S / 8) + 200.
TEST(Dispatch, sequence_parallelism_is_off_while_one_pe_is_as_fast) {
  const int64_t from = sp_from({1, 8, 200});
  EXPECT_EQ(from, 230);  // 230 against 29 + 200; 229 against 229
  EXPECT_EQ(layout_of(request_of(from)), DecodeLayout::kShort);
  const DecodeChoice off = choose_decode(request_of(from - 1));
  EXPECT_EQ(off.layout, DecodeLayout::kOnePe);
  EXPECT_EQ(off.degree, SpDegree{});
  EXPECT_EQ(off.rank_keys, from - 1);
}

TEST(Dispatch, the_threshold_of_sequence_parallelism_is_the_first_context_that_gains) {
  for (const int pes : {2, 3, 8, 64}) {
    for (const int64_t keys : {0, 1, 5, 6, 7, 8, 100, 1001}) {
      const auto gains = [&](int64_t context) { return context > (context - 1) / pes + 1 + keys; };
      int64_t context = 1;
      while (!gains(context)) ++context;
      EXPECT_EQ(sp_from({1, pes, keys}), context) << pes << " " << keys;
    }
  }
}

// Where the reduction over many CUBEs costs more than it saves, fewer take part.
TEST(Dispatch, fewer_cubes_share_a_head_where_their_reduction_pays_and_a_larger_one_does_not) {
  DecodeCase request = request_of(64 * 100, 8);
  request.threshold = 1;
  request.degrees = {{8, 8, 200}, {4, 8, 100}, {2, 8, 1}};
  EXPECT_EQ(choose_decode(request).degree.cubes, 4);  // 100 + 200, 200 + 100, 400 + 1: equal, and fewer ranks
  request.largest_context += 64;
  EXPECT_EQ(choose_decode(request).degree.cubes, 8);
}

TEST(Dispatch, a_shard_that_fits_is_done_in_one_shot) {
  const DecodeChoice fits = choose_decode(request_of(8 * 1000));
  EXPECT_TRUE(fits.one_shot);
  EXPECT_EQ(fits.tile, 1000);
  const DecodeChoice tiled = choose_decode(request_of(8 * 1000 + 1));
  EXPECT_FALSE(tiled.one_shot);
  EXPECT_EQ(tiled.rank_keys, 1001);
  EXPECT_EQ(tiled.tile, 64);
}

TEST(Dispatch, refuses_what_is_no_request) {
  EXPECT_THROW(choose_decode(request_of(0)), Error);
  DecodeCase request = request_of(64);
  request.degrees.clear();
  EXPECT_THROW(choose_decode(request), Error);
}

}  // namespace
}  // namespace coprime::attention
