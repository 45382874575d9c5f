// What a person is told of links that are not the best. Whole worlds: tests/.
#include "engine/linking.h"

#include <gtest/gtest.h>

namespace coprime {
namespace {

using Notes = std::vector<std::string>;

TEST(Linking, ranks_without_rdma_are_listed_by_reason) {
  const std::vector<RankFacts> facts{
      {.no_verbs = "no driver"}, {}, {.no_verbs = "no cable"}, {.no_verbs = "no driver"}};
  EXPECT_EQ(no_verbs_notes(facts), (Notes{"no RDMA on rank 2: no cable", "no RDMA on ranks 0, 3: no driver"}));
  EXPECT_EQ(no_verbs_notes(std::span(facts).subspan(1, 1)), Notes{});
}

TEST(Linking, a_pair_that_fell_back_is_told_once) {
  const std::vector<LinkReport> reports{{.refusals = {"", "", "the warm-up failed"}},
                                        {.refusals = {"", "", ""}},
                                        {.refusals = {"rank 0 gave up: the warm-up failed", "", ""}}};
  EXPECT_EQ(fallback_notes(reports), Notes{"ranks 0 and 2 use tcp, not verbs: the warm-up failed"});
}

}  // namespace
}  // namespace coprime
