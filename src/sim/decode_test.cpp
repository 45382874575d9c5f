#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/run.h"
#include "tl/decode_memory.h"

namespace coprime::sim {
namespace {

RunSpec small() {
  RunSpec spec;
  spec.context = 64 * 64 * 8;
  return spec;
}

TEST(Decode, CountsRoundsAndSends) {
  const RunResult result = run(ahbm_chip(), small());
  EXPECT_EQ(result.rounds, 6);
  EXPECT_EQ(result.sends, 189);
  EXPECT_EQ(result.sends_total, 1512);
}

constexpr std::array kVariants = {tl::DecodeVariant::kOpt1, tl::DecodeVariant::kOpt3, tl::DecodeVariant::kOpt3v,
                                  tl::DecodeVariant::kOpt2};

// Two ranks, each with all its keys in one tile.
RunSpec one_shot(tl::DecodeVariant variant, int64_t rows, int64_t keys) {
  RunSpec spec;
  spec.variant = variant, spec.rows = rows;
  spec.cubes = spec.kv_heads = 1, spec.pes = 2;
  spec.context = 2 * keys, spec.tile = keys;
  return spec;
}

TEST(Decode, OneShotNeedsTheBytesOfItsClosedForm) {
  for (const auto variant : kVariants) {
    for (const int64_t rows : {1, 3, 8}) {
      for (const int64_t keys : {1, 7, 64, 1000}) {
        EXPECT_EQ(run(ahbm_chip(), one_shot(variant, rows, keys)).totals.arena_high_water,
                  tl::one_shot_bytes(variant, rows, 128, keys))
            << static_cast<int>(variant) << " " << rows << " " << keys;
      }
    }
  }
}

TEST(Decode, OneShotFitsUpToTheKeysOfItsClosedFormAndNotOneMore) {
  for (const auto variant : kVariants) {
    const int64_t keys = tl::one_shot_keys(variant, 8, 128, ahbm_chip().pe.arena_bytes);
    EXPECT_NO_THROW(run(ahbm_chip(), one_shot(variant, 8, keys))) << keys;
    EXPECT_THROW(run(ahbm_chip(), one_shot(variant, 8, keys + 1)), Error) << keys;
  }
  EXPECT_EQ(tl::one_shot_keys(tl::DecodeVariant::kOpt3, 8, 128, 1000), 0);
}

}  // namespace
}  // namespace coprime::sim
