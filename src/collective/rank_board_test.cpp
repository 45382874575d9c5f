#include "collective/rank_board.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "gate/testing.h"

namespace coprime {
namespace {

struct Note {
  int rank, round;
};

TEST(RankBoard, every_rank_reads_all_notes_of_every_round) {
  const auto region = RankBoard::make_region(3);
  const auto statuses = testing::run_processes(3, [&](int rank) {
    RankBoard board(region, rank, 20'000);
    for (int round = 0; round < 200; ++round) {
      const std::vector<Note> notes = board.exchange(Note{rank, round});
      for (int peer = 0; peer < 3; ++peer) {
        if (notes[static_cast<size_t>(peer)].rank != peer || notes[static_cast<size_t>(peer)].round != round) return 1;
      }
    }
    return 0;
  });
  EXPECT_EQ(statuses, std::vector<int>(3));
}

TEST(RankBoard, names_the_ranks_that_do_not_come) {
  RankBoard board(RankBoard::make_region(3), 1, 20);
  try {
    board.barrier();
    FAIL() << "a board of one rank of three";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    EXPECT_NE(std::string(error.what()).find("for ranks 0, 2"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace coprime
