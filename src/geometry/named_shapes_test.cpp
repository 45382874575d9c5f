#include "geometry/named_shapes.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "geometry/shard_plan.h"

namespace coprime {
namespace {

TEST(NamedShapes, each_config_is_read_as_its_row_says) {
  int complete = 0;
  for (const NamedShape& named : named_shapes()) {
    if (!named.architecture) continue;
    ++complete;
    const ModelShape shape = parse_model_shape(config_json(named), std::string(named.name));
    EXPECT_EQ(shape.architecture, *named.architecture) << named.name;
    EXPECT_EQ(shape.hidden, named.hidden) << named.name;
    EXPECT_EQ(shape.intermediate, named.intermediate) << named.name;
    EXPECT_EQ(shape.layers, named.layers) << named.name;
    EXPECT_EQ(shape.q_heads, named.q_heads) << named.name;
    EXPECT_EQ(shape.kv_heads, named.kv_heads) << named.name;
    EXPECT_EQ(shape.head_dim, named.head_dim) << named.name;
    EXPECT_EQ(shape.vocab, named.vocab) << named.name;
    EXPECT_EQ(shape.max_positions, named.max_positions) << named.name;
    EXPECT_EQ(shape.tied_head, named.tied_head) << named.name;
    EXPECT_EQ(shape.rms_eps, static_cast<float>(named.rms_eps)) << named.name;
    EXPECT_EQ(shape.rope.theta, named.rope_theta) << named.name;
    EXPECT_EQ(shape.rope.llama3, named.llama3_factor > 0) << named.name;
    EXPECT_EQ(shape.mtp_layers, named.mtp_layers) << named.name;
    EXPECT_EQ(shape.linear.value_heads, named.linear.value_heads) << named.name;
  }
  EXPECT_GE(complete, 20);
}

// padding.md's counts of parameters, from the names alone: the sizes that the models are called by.
TEST(NamedShapes, have_as_many_parameters_as_their_names_say) {
  const std::pair<const char*, double> kBillions[] = {
      {"smollm2-135m", 0.1345}, {"smollm2-360m", 0.3618}, {"smollm2-1.7b", 1.711}, {"llama-3.1-8b", 8.030},
      {"llama-3.1-70b", 70.55}, {"llama-3.2-1b", 1.236},  {"llama-3.2-3b", 3.213}, {"qwen2.5-0.5b", 0.494},
      {"qwen2.5-1.5b", 1.544},  {"qwen2.5-3b", 3.086},    {"qwen2.5-7b", 7.616},   {"qwen2.5-14b", 14.77},
      {"qwen2.5-32b", 32.76},   {"qwen2.5-72b", 72.71},   {"qwen3-0.6b", 0.596},   {"qwen3-1.7b", 1.721},
      {"qwen3-4b", 4.022},      {"qwen3-8b", 8.191},      {"qwen3-14b", 14.77},    {"qwen3-32b", 32.76},
  };
  for (const auto& [name, billions] : kBillions) {
    const ShardPlan plan(parse_model_shape(config_json(named_shape(name)), name), {});
    double parameters = 0;
    for (const Rule& rule : plan.rules()) {
      double count = rule.expected;
      for (int64_t size : rule.shape) count *= static_cast<double>(size);
      parameters += count;
    }
    EXPECT_NEAR(parameters / 1e9, billions, billions * 0.002) << name;
  }
}

TEST(NamedShapes, every_row_is_sound_and_has_a_name_of_its_own) {
  std::set<std::string_view> names;
  for (const NamedShape& shape : named_shapes()) {
    EXPECT_TRUE(names.insert(shape.name).second) << shape.name;
    EXPECT_EQ(find_named_shape(shape.name), &shape);
    EXPECT_EQ(shape.q_heads % shape.kv_heads, 0) << shape.name;
    EXPECT_TRUE(shape.intermediate > 0 || shape.experts.width > 0) << shape.name;
    EXPECT_EQ(shape.full_attention_interval > 1, shape.linear.value_heads > 0) << shape.name;
    EXPECT_LE(shape.experts.per_token, shape.experts.count) << shape.name;
  }
}

TEST(NamedShapes, are_found_in_any_case_and_all_named_when_missing) {
  EXPECT_EQ(named_shape("Llama-3.1-8B").name, "llama-3.1-8b");
  try {
    named_shape("llama-9\n");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    const std::string text = error.what();
    EXPECT_NE(text.find("qwen3.8-27b"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(NamedShapes, one_to_plan_with_has_no_config) { EXPECT_THROW(config_json(named_shape("deepseek-v3")), Error); }

}  // namespace
}  // namespace coprime
