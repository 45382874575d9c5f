#include "attention/kv_placement.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "attention/causal.h"
#include "attention/ring_order.h"
#include "base/error.h"

namespace coprime::attention {
namespace {

TEST(KvPlacement, has_the_blocks_of_A3) {
  struct Row {
    int64_t tokens;
    int ranks;
    int64_t block, non_empty, last;
  };
  constexpr Row kRows[] = {{10, 4, 3, 4, 1},    {9, 4, 3, 3, 3},       {64, 64, 1, 64, 1},          {65, 64, 2, 33, 1},
                           {129, 64, 3, 43, 3}, {1000, 64, 16, 63, 8}, {100000, 64, 1563, 64, 1531}};
  for (const Row& row : kRows) {
    const KvPlacement placement = kv_placement(row.tokens, row.ranks / 2, 2);
    EXPECT_EQ(placement.block, row.block) << row.tokens;
    EXPECT_EQ(placement.ranks_with_tokens(row.tokens), row.non_empty) << row.tokens;
    EXPECT_EQ(placement.held(static_cast<int>(row.non_empty - 1), row.tokens), row.last) << row.tokens;
    if (row.non_empty < row.ranks) {
      EXPECT_EQ(placement.held(static_cast<int>(row.non_empty), row.tokens), 0);
    }
  }
}

TEST(KvPlacement, maps_every_token_to_one_slot_of_one_rank_without_gaps) {
  for (const int cubes : {1, 2, 3, 8}) {
    for (const int pes : {1, 2, 4, 8}) {
      for (const int64_t context : {1, 7, 64, 65, 129, 1000}) {
        for (const int64_t multiple : {1, 16}) {
          const KvPlacement placement = kv_placement(context, cubes, pes, multiple);
          std::vector<int64_t> filled(static_cast<size_t>(placement.ranks()));
          for (int64_t token = 0; token < context; ++token) {
            const int rank = placement.rank(token);
            ASSERT_LT(rank, placement.ranks());
            EXPECT_EQ(placement.slot(token), filled[static_cast<size_t>(rank)]++);
            EXPECT_EQ(placement.begin(rank) + placement.slot(token), token);
            EXPECT_EQ(placement.writer(token + 1), rank);
          }
          int64_t sum = 0;
          for (int rank = 0; rank < placement.ranks(); ++rank) {
            EXPECT_EQ(placement.held(rank, context), filled[static_cast<size_t>(rank)]);
            EXPECT_EQ(placement.tiles(rank, context, 16), (filled[static_cast<size_t>(rank)] + 15) / 16);
            sum += placement.held(rank, context);
          }
          EXPECT_EQ(sum, context);
          EXPECT_EQ(placement.block % multiple, 0);
        }
      }
    }
  }
}

TEST(KvPlacement, does_not_move_data_as_the_sequence_grows) {
  const KvPlacement placement = kv_placement(1000, 8, 8);
  for (int64_t tokens = 1; tokens < 1000; ++tokens)
    for (int rank = 0; rank < 64; ++rank) EXPECT_LE(placement.held(rank, tokens), placement.held(rank, tokens + 1));
  EXPECT_EQ(placement.held(63, 1000), 0);  // 16 * 63 = 1008
  EXPECT_EQ(placement.writer(17), 1);      // the 17th token is the first of rank 1
}

TEST(KvPlacement, is_rotated_by_the_request_over_all_places) {
  std::set<std::pair<int, int>> firsts;
  for (int64_t request = 0; request < 64; ++request) {
    const KvPlacement placement = kv_placement(1000, 8, 8, 1, request);
    firsts.insert({placement.first_cube, placement.first_pe});
    std::set<int> ranks;
    for (int cube = 0; cube < 8; ++cube) {
      for (int pe = 0; pe < 8; ++pe) {
        const int rank = placement.rank_of(cube, pe);
        ranks.insert(rank);
        EXPECT_EQ(placement.cube_of(rank), cube);
        EXPECT_EQ(placement.pe_of(rank), pe);
      }
    }
    EXPECT_EQ(ranks.size(), 64u);
  }
  EXPECT_EQ(firsts.size(), 64u);
  EXPECT_EQ(kv_placement(1000, 8, 8).rank_of(2, 3), 19);
}

TEST(KvPlacement, refuses_counts_below_one) {
  EXPECT_THROW(kv_placement(0, 1, 1), Error);
  EXPECT_THROW(kv_placement(1, 0, 1), Error);
  EXPECT_THROW(kv_placement(1, 1, 1, 0), Error);
}

TEST(KvPlacement, of_short_contexts_keeps_heads_whole) {
  for (const int heads : {1, 2, 4, 8}) {
    EXPECT_EQ(cube_of_head(0, heads), 0);
    EXPECT_EQ(cube_of_head(7, heads), 8 / heads - 1);
  }
}

TEST(Causal, tiles_of_a_square_are_its_lower_triangle) {
  struct Row {
    int64_t tiles, computed, skipped;
  };
  constexpr Row kRows[] = {{8, 36, 28}, {16, 136, 120}, {128, 8256, 8128}};
  for (const Row& row : kRows) {
    TileCounts total;
    for (int64_t i = 0; i < row.tiles; ++i) {
      const TileCounts counts = tile_counts(i * 64, (i + 1) * 64, 64, row.tiles);
      total.past += counts.past;
      total.partial += counts.partial;
      total.future += counts.future;
    }
    EXPECT_EQ(total.past + total.partial, row.computed);
    EXPECT_EQ(total.partial, row.tiles);
    EXPECT_EQ(total.future, row.skipped);
  }
}

TEST(Causal, closed_form_counts_what_each_tile_says) {
  for (int64_t begin = 0; begin < 20; ++begin) {
    for (int64_t end = begin + 1; end < 40; ++end) {
      for (int64_t tile = 1; tile < 9; ++tile) {
        TileCounts counts;
        const int64_t tiles = 6;
        for (int64_t i = 0; i < tiles; ++i) {
          const TileKind kind = tile_kind(begin, end, i * tile, (i + 1) * tile);
          (kind == TileKind::kPast ? counts.past : kind == TileKind::kPartial ? counts.partial : counts.future) += 1;
        }
        EXPECT_EQ(tile_counts(begin, end, tile, tiles), counts) << begin << " " << end << " " << tile;
      }
    }
  }
}

TEST(Causal, no_query_sees_a_key_of_a_future_tile_and_all_see_those_of_a_past_one) {
  for (int64_t begin = 0; begin < 12; ++begin) {
    for (int64_t key = 0; key < 12; ++key) {
      const TileKind kind = tile_kind(begin, begin + 3, key, key + 2);
      const bool first_sees_all = key + 1 <= begin, last_sees_one = key <= begin + 2;
      if (kind == TileKind::kPast) {
        EXPECT_TRUE(first_sees_all);
      }
      EXPECT_EQ(kind == TileKind::kFuture, !last_sees_one);
    }
  }
}

TEST(Causal, chunks_on_a_ring_of_8_compute_36_steps_a_cube_and_skip_28) {
  for (int position = 0; position < 8; ++position) {
    int computed = 0, skipped = 0;
    for (int chunk = 0; chunk < 8; ++chunk) {
      std::set<int> blocks;
      for (int step = 0; step < 8; ++step) {
        blocks.insert(ring_block(position, step, 8));
        ++(ring_step_computes(position, step, chunk, 8) ? computed : skipped);
      }
      EXPECT_EQ(blocks.size(), 8u);  // every CUBE sees every block
    }
    EXPECT_EQ(computed, 36);
    EXPECT_EQ(skipped, 28);
  }
}

}  // namespace
}  // namespace coprime::attention
