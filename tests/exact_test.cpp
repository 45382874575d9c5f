// Exact mode: the same bits at every rank count, thread count, chunking, batch; and what the plain mode promises of
// them.
#include <gtest/gtest.h>

#include <cstring>

#include "worlds.h"

namespace coprime {
namespace {

const std::vector<std::string> kModels{"llama-9q3kv-tied",    "qwen2-14q2kv-bias",  "qwen35-6q2kv-gdn4-12",
                                       "qwen3-10q2kv-untied", "llama3-rope-untied", "mini-qwen35"};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class Exact : public testing::TestWithParam<std::string> {
 protected:
  WorldOptions world(int ranks) const {
    WorldOptions options = thread_world(golden_, ranks);
    options.plan.exact = true;
    return options;
  }
  const Golden golden_ = read_golden(GetParam());
  const GoldenCase& case_ = golden_.cases[0];
};

TEST_P(Exact, every_rank_count_gives_the_same_bits) {
  const auto expected = logits_of(world(1), case_);
  for (int ranks : {2, 3, 4, 5, 6, 7, 8, 11, 16})
    EXPECT_TRUE(same_bits(logits_of(world(ranks), case_), expected)) << ranks;
}

TEST_P(Exact, tcp_gives_the_same_bits) {
  WorldOptions options = world(3);
  options.link = Link::kTcp;
  EXPECT_TRUE(same_bits(logits_of(options, case_), logits_of(world(1), case_)));
}

TEST_P(Exact, one_thread_a_rank_and_two_give_the_same_bits) {
  const auto expected = logits_of(world(1), case_);
  for (int ranks : {1, 2, 3}) {
    WorldOptions options = world(ranks);
    options.threads = 2;
    EXPECT_TRUE(same_bits(logits_of(options, case_), expected)) << ranks;
  }
}

TEST_P(Exact, one_chunk_and_many_give_the_same_bits) {
  const auto expected = logits_of(world(1), case_);
  for (int rows : {1, 2, 13, 64, 65}) {
    for (int ranks : {1, 3}) {
      WorldOptions options = world(ranks);
      options.max_rows = rows;
      EXPECT_TRUE(same_bits(logits_of(options, case_), expected)) << rows << " rows a step, " << ranks << " ranks";
    }
  }
}

TEST_P(Exact, alone_and_in_a_batch_give_the_same_bits) {
  std::vector<int32_t> first(case_.ids.begin(), case_.ids.begin() + 60),
      second(case_.ids.rbegin(), case_.ids.rbegin() + 60);
  std::vector<int32_t> both = first;
  both.insert(both.end(), second.begin(), second.end());
  const GoldenCase alone_a{1, 60, first, {}}, alone_b{1, 60, second, {}}, batch{2, 60, both, {}};
  for (int ranks : {1, 3}) {
    auto expected = logits_of(world(ranks), alone_a);
    const auto rest = logits_of(world(ranks), alone_b);
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_TRUE(same_bits(logits_of(world(ranks), batch), expected)) << ranks;
  }
}

TEST_P(Exact, narrow_keys_and_values_keep_it) {
  for (DType kv : {DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    WorldOptions one = world(1), three = world(3);
    one.kv_type = three.kv_type = kv;
    three.max_rows = 17;
    EXPECT_TRUE(same_bits(logits_of(one, case_), logits_of(three, case_)));
  }
}

TEST_P(Exact, a_geometry_padded_for_three_keeps_it) {
  const auto expected = logits_of(world(1), case_);
  for (int ranks : {1, 2, 3}) {
    for (Dummies dummies : {Dummies::kSkipped, Dummies::kHeld}) {
      WorldOptions options = world(ranks);
      options.plan.pad_for = 3;
      options.plan.dummies = dummies;
      EXPECT_TRUE(same_bits(logits_of(options, case_), expected)) << ranks;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Exact, testing::ValuesIn(kModels), [](const auto& which) {
  std::string name = which.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

// Prefill in chunks is chunked DeltaNet across chunk edges; token by token is its recurrence.
TEST(Chunking, prefill_in_chunks_equals_token_by_token) {
  for (const std::string& model : kModels) {
    const Golden golden = read_golden(model);
    WorldOptions options = thread_world(golden, 1);
    options.sequences = 1;
    options.max_rows = 1;
    const auto expected = logits_of(options, golden.cases[0]);
    for (int rows : {7, 63, 64, 65, 256}) {
      options.max_rows = rows;
      EXPECT_LE(largest_difference(logits_of(options, golden.cases[0]), expected), 1e-4f)
          << model << ", " << rows << " rows a step";
    }
  }
}

TEST(Geometry, padded_for_three_runs_on_one_two_and_three_ranks) {
  for (const std::string& model : kModels) {
    const Golden golden = read_golden(model);
    for (int ranks : {1, 2, 3}) {
      for (Dummies dummies : {Dummies::kSkipped, Dummies::kHeld}) {
        WorldOptions options = thread_world(golden, ranks);
        options.plan.pad_for = 3;
        options.plan.dummies = dummies;
        EXPECT_LE(largest_difference(logits_of(options, golden.cases[0]), golden.cases[0].logits), 1e-4f)
            << model << " on " << ranks;
      }
    }
  }
}

}  // namespace
}  // namespace coprime
