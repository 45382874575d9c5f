#include "engine/links.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coprime {
namespace {

const std::vector<RankPlace> kTwoHosts{
    {.host = "a", .no_verbs = "no cable"}, {.host = "a"}, {.host = "b"}, {"a", "no driver", "no library"}};

TEST(Links, ranks_of_one_host_share_memory_unless_the_wish_rules_it_out) {
  EXPECT_EQ(memory_group(Link::kAuto, kTwoHosts, 3), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(memory_group(Link::kShm, kTwoHosts, 0), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(memory_group(Link::kAuto, kTwoHosts, 2), std::vector<int>{});
  EXPECT_EQ(memory_group(Link::kTcp, kTwoHosts, 0), std::vector<int>{});
  EXPECT_EQ(memory_group(Link::kVerbs, kTwoHosts, 0), std::vector<int>{});
  EXPECT_EQ(memory_group(Link::kUcx, kTwoHosts, 0), std::vector<int>{});
}

TEST(Links, the_best_that_both_have_is_chosen) {
  EXPECT_EQ(choose_link(Link::kAuto, kTwoHosts, 0, 1, true, ""), Link::kShm);
  EXPECT_EQ(choose_link(Link::kAuto, kTwoHosts, 0, 1, false, "no socket"), Link::kTcp);
  EXPECT_EQ(choose_link(Link::kAuto, kTwoHosts, 1, 2, false, ""), Link::kVerbs);
  EXPECT_EQ(choose_link(Link::kTcp, kTwoHosts, 1, 2, false, ""), Link::kTcp);
  EXPECT_EQ(choose_link(Link::kVerbs, kTwoHosts, 1, 2, false, ""), Link::kVerbs);
  EXPECT_EQ(choose_link(Link::kUcx, kTwoHosts, 0, 2, false, ""), Link::kUcx);
}

std::string refusal(Link wish, int a, int b, std::string_view why_not) {
  try {
    choose_link(wish, kTwoHosts, a, b, false, why_not);
    return "none";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    return error.what();
  }
}

TEST(Links, a_wish_that_cannot_be_granted_names_both_ranks_and_the_reason) {
  EXPECT_EQ(refusal(Link::kShm, 0, 2, ""),
            "--link shm: ranks 0 and 2 share no memory (they are on different hosts): use --link auto");
  EXPECT_EQ(refusal(Link::kShm, 0, 1, "the socket is hidden"),
            "--link shm: ranks 0 and 1 share no memory (the socket is hidden): use --link auto");
  EXPECT_EQ(refusal(Link::kVerbs, 0, 2, ""), "--link verbs: rank 0 has no RDMA device (no cable): use --link auto");
  EXPECT_EQ(refusal(Link::kVerbs, 2, 3, ""), "--link verbs: rank 3 has no RDMA device (no driver): use --link auto");
  EXPECT_EQ(refusal(Link::kUcx, 2, 3, ""), "--link ucx: rank 3 has no UCX (no library): use --link auto");
}

}  // namespace
}  // namespace coprime
