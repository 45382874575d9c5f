#include "engine/front.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace coprime {
namespace {

TEST(Front, refuses_caches_that_the_memory_of_its_host_cannot_hold) {
  WorldOptions options;
  options.context = 4096;
  options.sequences = 100;
  const ShardPlan plan(read_model_shape(COPRIME_SOURCE_DIR "/models/mini-qwen35"), {.ranks = 2});
  // Two layers of attention, four KV heads of 32 elements, keys and values of four bytes; the states are less.
  const int64_t kv_bytes = int64_t{2} * 4 * 32 * 2 * 4 * options.context * options.sequences;
  EXPECT_NO_THROW(check_cache_memory(plan, options, kv_bytes * 11 / 10));
  try {
    check_cache_memory(plan, options, kv_bytes);
    ADD_FAILURE() << "it fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("100 sequences of 4096 tokens"), std::string::npos) << error.what();
  }
  options.remote.ranks = 1;  // half of it is another host's
  EXPECT_NO_THROW(check_cache_memory(plan, options, kv_bytes));
}

}  // namespace
}  // namespace coprime
