#include "plan/plan.h"

#include <gtest/gtest.h>

#include <sstream>

#include <fmt/format.h>

#include "base/error.h"
#include "json/json.h"
#include "plan/plan_report.h"
#include "plan/test_shapes.h"

namespace coprime {
namespace {

constexpr std::string_view kQwen27 = R"({"architectures":["Qwen3_5ForCausalLM"],"model_type":"qwen3_5_text",
 "hidden_size":5120,"intermediate_size":17408,"vocab_size":248320,"num_hidden_layers":64,"num_attention_heads":24,
 "num_key_value_heads":4,"head_dim":256,"max_position_embeddings":262144,"full_attention_interval":4,
 "linear_num_key_heads":16,"linear_num_value_heads":48,"linear_key_head_dim":128,"linear_value_head_dim":128,
 "linear_conv_kernel_dim":4,"tie_word_embeddings":false})";

// Qwen3-30B-A3B.
constexpr std::string_view kMixture = R"({"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe",
 "hidden_size":2048,"intermediate_size":6144,"moe_intermediate_size":768,"vocab_size":151936,"num_hidden_layers":48,
 "num_attention_heads":32,"num_key_value_heads":4,"head_dim":128,"max_position_embeddings":40960,"num_experts":128,
 "num_experts_per_tok":8,"tie_word_embeddings":false})";

Machine machine_over(std::string_view link) {
  Machine machine = *find_machine("dgx-spark");
  machine.link = *find_link(link);
  return machine;
}

PlanInput input_of(std::string_view config, int64_t ranks, std::string_view format = "bf16") {
  return {.model = parse_model_numbers(config, "config.json"),
          .format = plan_format(format),
          .format_source = "--format",
          .machine = *find_machine("desktop"),
          .ranks = ranks,
          .pad_for = ranks};
}

bool says(const Plan& plan, std::string_view words) {
  for (const std::string& line : plan.verdict) {
    if (line.find(words) != std::string::npos) return true;
  }
  return false;
}

// spec of the seed: 24/4 heads become 36/6, 16/48 linear heads 18/54, and the parameters grow by 0.84 G, 0.70 G and
// 0.06 G, 5.9 % of 27 G.
TEST(Plan, of_qwen_27b_on_three_ranks_has_the_known_geometry_and_overhead) {
  const Plan plan = make_plan(input_of(kQwen27, 3, "mxfp4"));
  EXPECT_EQ(plan.padded, (PaddedCounts{36, 6, 18, 54, 17472, 0, 0, 248448}));
  const RankLoad whole = whole_load(plan.input.model);
  RankLoad padded = whole;
  padded.q_heads = padded.o_heads = 36, padded.kv_heads = 6, padded.key_heads = 18, padded.width = 17472;
  const Parameters before = parameters_of(plan.input.model, whole), after = parameters_of(plan.input.model, padded);
  EXPECT_NEAR((after.attention - before.attention) / 1e9, 0.84, 0.005);
  EXPECT_NEAR((after.linear - before.linear) / 1e9, 0.70, 0.01);
  EXPECT_NEAR((after.mlp - before.mlp) / 1e9, 0.06, 0.005);
  EXPECT_NEAR(plan.parameters.all() / 1e9, 27, 0.5);
  EXPECT_NEAR(plan.padded_parameters / plan.parameters.all() - 1, 0.059, 0.001);
  EXPECT_NEAR(plan.kv_overhead, 0.5, 1e-9);
}

// 16 attention layers of 2 KV heads a rank, keys and values of 256, f32.
// As published: Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf has 4920739232 bytes, Q5_K_M 5732992416; 8 MB are the
// vocabulary's.
TEST(Plan, of_a_mixture_by_name_has_about_the_size_of_the_published_file) {
  const ModelNumbers model = numbers_of(named_shape("llama-3.1-8b"));
  const Parameters all = parameters_of(model, whole_load(model));
  EXPECT_NEAR(weight_bytes(all, plan_format("Q4_K_M", model)) / 1e9, 4.91, 0.02);
  EXPECT_NEAR(weight_bytes(all, plan_format("q5_k_m", model)) / 1e9, 5.72, 0.02);
  EXPECT_EQ(plan_format("Q8_0", model).bits, 8.5);
  EXPECT_THROW(plan_format("iq4_xs", model), Error);
}

TEST(Plan, counts_kv_state_and_slots_of_a_rank) {
  const Plan plan = make_plan(input_of(kQwen27, 3, "mxfp4"));
  const RankMemory& rank = plan.main().ranks[0];
  EXPECT_EQ(rank.kv_per_token, 16 * 2 * 2 * 256 * 4);
  // 48 layers, 6 key heads with 3 value heads of 128 x 128 each, and 3 taps of (128 + 128 + 3 * 128) channels; two
  // slots.
  EXPECT_EQ(rank.state, 48.0 * 6 * (3 * 128 * 128 + 3 * (2 * 128 + 3 * 128)) * 4);
  EXPECT_EQ(rank.gate_slots, 2.0 * 256 * 5120 * 4);
  EXPECT_EQ(rank.scratch, 2.0 * 2 * 256 * 5120 * 4);
  EXPECT_EQ(plan.main().gates, 129);
  EXPECT_EQ(plan.main().gate_bytes, 129.0 * 5120 * 4);
}

TEST(Plan, finds_the_longest_context_that_fits_the_memory) {
  PlanInput input = input_of(kQwen27, 3, "mxfp4");
  const Plan plan = make_plan(input);
  const RankMemory& rank = plan.main().ranks[0];
  input.memory_bytes = static_cast<int64_t>(rank.fixed() + rank.state + 1000 * rank.kv_per_token) + 1;
  EXPECT_EQ(make_plan(input).longest_context, 1000);
  input.batch = 2;
  EXPECT_LT(make_plan(input).longest_context, 500);
  input.batch = 1;
  input.memory_bytes = 1'000'000'000;
  const Plan small = make_plan(input);
  EXPECT_EQ(small.longest_context, 0);
  EXPECT_TRUE(says(small, "It does not fit"));
}

TEST(Plan, of_a_small_mixture_over_slow_gates_says_that_more_ranks_do_not_help) {
  PlanInput input = input_of(kMixture, 4, "mxfp4");
  input.machine = machine_over("1g");
  const Plan plan = make_plan(input);
  EXPECT_TRUE(says(plan, "1 rank would be faster than 4")) << plan.verdict.back();
  EXPECT_TRUE(says(plan, "ranks gain memory here, not speed"));
  EXPECT_TRUE(says(plan, "does not run this model yet"));
}

TEST(Plan, of_a_dense_model_over_fast_links_says_that_ranks_help) {
  PlanInput input = input_of(kQwen27, 2);
  input.machine = machine_over("100g-rdma");
  const Plan plan = make_plan(input);
  EXPECT_EQ(plan.joined_by, "100 Gb/s, RDMA");
  EXPECT_TRUE(says(plan, "2 ranks are 1.9")) << plan.verdict.back();
}

// Of three ranks one has no real heads when 24/4 are padded; overlapping heads give each 8 and 2.
TEST(Plan, marks_the_splits_that_do_not_run_and_counts_what_each_costs) {
  const Plan plan = make_plan(input_of(kQwen27, 3));
  ASSERT_EQ(plan.splits.size(), 8u);
  for (const SplitPlan& split : plan.splits)
    EXPECT_EQ(split.split.runs, split.split.kind == SplitKind::kPad || split.split.kind == SplitKind::kExact)
        << split.split.name;
  const auto read = [&](SplitKind kind) {
    double most = 0;
    for (const RankMemory& rank : plan.splits[static_cast<size_t>(kind)].ranks)
      most = std::max(most, rank.step_weights);
    return most;
  };
  EXPECT_LT(read(SplitKind::kOverlap), read(SplitKind::kPad));
  EXPECT_GT(read(SplitKind::kDuplicate), read(SplitKind::kPad));
  const StepTime &pad = plan.splits[0].step, &exact = plan.splits[1].step;
  EXPECT_GT(exact.gates, pad.gates);
  EXPECT_NEAR(plan.splits[5].ranks[0].kv_per_token, 16 * 4 * 2 * 256 * 4 / 3.0,
              1e-6);  // a third of the tokens, all heads
  EXPECT_GT(plan.splits[7].step.total(), plan.splits[0].step.total());
}

TEST(Plan, adds_the_exact_bytes_that_it_is_given) {
  PlanInput input = input_of(kQwen27, 2);
  input.weights = {{1000, 900}, {1001, 901}};
  const Plan plan = make_plan(input);
  EXPECT_EQ(plan.main().ranks[1].weights, 1001);
  EXPECT_EQ(plan.main().ranks[0].step_weights, 900);
  EXPECT_GT(plan.splits[static_cast<size_t>(SplitKind::kOverlap)].ranks[0].weights, 1e9);
}

TEST(Plan, refuses_a_machine_without_a_host_for_every_rank) {
  PlanInput input = input_of(kQwen27, 3);
  input.machine.repeats = false;
  input.machine.hosts.push_back(input.machine.hosts[0]);
  input.machine.hosts[0].ranks = {0};
  input.machine.hosts[1].ranks = {1};
  EXPECT_THROW(make_plan(input), Error);
}

TEST(PlanReport, keeps_to_100_columns) {
  for (const std::string_view config : {kQwen27, kMixture}) {
    for (const int64_t ranks : {1, 2, 3, 5, 7, 16}) {
      std::istringstream lines(plan_text(make_plan(input_of(config, ranks))));
      bool verdict = false;
      for (std::string line; std::getline(lines, line);) {
        verdict = verdict || line.starts_with("- ");
        if (!verdict) {
          EXPECT_LE(line.size(), 100u) << line;
        }
      }
      EXPECT_TRUE(verdict || ranks == 1);
    }
  }
}

TEST(PlanReport, in_json_has_the_documented_keys) {
  const std::string text = plan_json(make_plan(input_of(kQwen27, 3)));
  const JsonDocument document(text, "plan");
  for (const std::string_view key :
       {"model",   "format",     "format_source",     "machine",  "ranks",          "pad_for",      "context",
        "batch",   "exact",      "quantities",        "overhead", "memory_by_rank", "memory_bytes", "longest_context",
        "split",   "step",       "tokens_per_second", "gates",    "links",          "splits",       "rank_counts",
        "verdict", "gate_share", "prompt_seconds"})
    EXPECT_TRUE(document.root().has(key)) << key;
  EXPECT_EQ(document.root().object("quantities")->object("kv_heads")->integer("padded", 0, 100), 6);
}

TEST(PlanReport, draws_a_picture_with_hatched_dummies) {
  const std::string svg = plan_picture(make_plan(input_of(kQwen27, 3)));
  EXPECT_NE(svg.find("0 + 12 dummies"), std::string::npos);
  EXPECT_NE(svg.find("url(#dummy)"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(Machines, interpolate_gates_and_scale_them_to_other_rank_counts) {
  Machine machine = *find_machine("desktop");
  machine.repeats = false;
  machine.gates = {{"shm", 2, {{1024, 2}, {2048, 3}, {4096, 5}}}};
  const std::vector<size_t> two(2, 0), three(3, 0);
  EXPECT_DOUBLE_EQ(machine_gate_us(machine, two, 3072), 4);
  EXPECT_DOUBLE_EQ(machine_gate_us(machine, two, 512), 2);
  EXPECT_DOUBLE_EQ(machine_gate_us(machine, two, 8192), 9);
  EXPECT_DOUBLE_EQ(machine_gate_us(machine, three, 3072), 8);  // two exchanges instead of one
  machine.pairs = {{0, 1, *find_link("nvlink")}};              // a third rank's links are not told by it
  EXPECT_DOUBLE_EQ(machine_gate_us(machine, three, 3072), 8);
}

// A host that a probe measured with gates of two ranks.
Machine probed_host() {
  Machine machine{.name = "here.json", .measured = true, .link = *find_link("shm")};
  machine.hosts.push_back({.name = "a", .cores = 2, .read = {{2, 1 << 30, 20}}});
  machine.gates = {{"shm", 2, {{1024, 100}, {1 << 20, 900}}}};
  return machine;
}

TEST(Plan, scales_gates_that_were_measured_among_fewer_ranks_and_says_so) {
  PlanInput two = input_of(kQwen27, 2), three = input_of(kQwen27, 3);
  two.machine = three.machine = probed_host();
  const Plan measured = make_plan(two), scaled = make_plan(three);
  EXPECT_NEAR(scaled.main().step.gates, 2 * measured.main().step.gates, 1e-9);
  EXPECT_EQ(scaled.joined_by, "shm");
  EXPECT_TRUE(says(scaled, "Gates of 3 ranks were not measured: those of 2, times 2/1"));
  EXPECT_TRUE(says(scaled, "a: more ranks than cores (3 on 2): gates will wait for the scheduler"));
  EXPECT_FALSE(says(measured, "were not measured"));
  EXPECT_FALSE(says(measured, "more ranks than cores"));
}

TEST(Plan, advises_no_link_to_ranks_of_one_host) {
  PlanInput input = input_of(kQwen27, 2);
  input.machine = probed_host();
  input.machine.gates[0].points = {{1024, 1e5}, {1 << 20, 1e5}};
  const Plan plan = make_plan(input);
  EXPECT_TRUE(says(plan, "1 rank would be faster than 2"));
  EXPECT_FALSE(says(plan, "faster link"));
  EXPECT_FALSE(says(plan, "Gates take"));
}

TEST(Plan, of_a_link_between_two_ranks_leaves_the_others_as_they_are) {
  PlanInput input = input_of(kQwen27, 3);
  input.machine = {.name = "three boxes"};
  for (const int rank : {0, 1, 2})
    input.machine.hosts.push_back({.name = "box", .ranks = {rank}, .read = {{1, 1 << 30, 20}}});
  input.machine.pairs = {{0, 1, *find_link("nvlink")}};
  const Plan plan = make_plan(input);
  EXPECT_EQ(plan.joined_by, "several links, the slowest 10 Gb/s Ethernet");
  EXPECT_TRUE(says(plan, "No file tells the link between ranks 0 and 2"));
  input.machine.link = *find_link("25g");
  EXPECT_FALSE(says(make_plan(input), "No file tells"));
}

std::string refusal(const PlanInput& input) {
  try {
    make_plan(input);
  } catch (const Error& error) {
    return error.what();
  }
  return "planned";
}

TEST(Plan, refuses_links_of_ranks_that_do_not_exist_and_shares_of_another_count) {
  PlanInput input = input_of(kQwen27, 3);
  input.machine = probed_host();
  input.machine.pairs = {{0, 3, *find_link("1g")}};
  EXPECT_NE(refusal(input).find("a link between ranks 0 and 3; expected ranks in 0..2"), std::string::npos);
  input.machine.pairs = {{0, 2, *find_link("1g")}};
  EXPECT_EQ(refusal(input), "planned");
  input.machine.shares = {2, 1};
  EXPECT_NE(refusal(input).find("has 2 shares; expected one for each of the 3 ranks"), std::string::npos);
}

TEST(Plan, that_a_smaller_batch_would_make_fit_says_so) {
  PlanInput input = input_of(kQwen27, 3, "mxfp4");
  input.batch = 4096;
  input.memory_bytes = 16'000'000'000;
  EXPECT_TRUE(says(make_plan(input), "use a smaller batch, more ranks, or a smaller format"));
  input.batch = 8;
  input.context = 200000;
  EXPECT_TRUE(says(make_plan(input), "8 sequences of 200000 tokens do not fit"));
  input.batch = 1;
  input.memory_bytes = 10'000'000;
  const Plan plan = make_plan(input);
  EXPECT_TRUE(says(plan, "has 10.0 MB: use more ranks, or a smaller format")) << plan.verdict[0];
}

TEST(PlanReport, of_a_geometry_for_another_rank_count_says_how_an_axis_is_shared_out) {
  PlanInput input = input_of(kQwen27, 3);
  input.pad_for = 2;
  const std::string text = plan_text(make_plan(input));
  EXPECT_NE(text.find("2 2 0                  ceil(4/3) = 2 whole heads"), std::string::npos) << text;
  EXPECT_EQ(text.find("copy 4 heads"), std::string::npos);
  const PlanInput eight = input_of(kQwen27, 8);
  EXPECT_NE(plan_text(make_plan(eight)).find("8 ranks copy 4 heads"), std::string::npos);
}

// Widths as of digits and letters of Helvetica, a little more than half the font's size.
TEST(PlanReport, draws_sixteen_ranks_within_the_picture) {
  const Plan plan = make_plan(input_of(kQwen27, 16));
  const std::string svg = plan_picture(plan);
  const size_t words = svg.find("dummy: zeros"), text = svg.rfind("<text x=\"", words);
  ASSERT_NE(words, std::string::npos);
  EXPECT_LT(std::stod(svg.substr(text + 9)) + 40 * 12 * 0.56, 1020);
  const RankLoad &held = plan.main().split.padded[15], &real = plan.main().split.held[15];
  EXPECT_NE(svg.find(fmt::format(">{}+{}<", real.vocab, held.vocab - real.vocab)), std::string::npos);
}

TEST(Machines, share_a_host_among_its_ranks) {
  Machine machine{.name = "one host"};
  machine.hosts.push_back({.cores = 4, .read = {{1, 1 << 30, 10}, {4, 1 << 20, 80}, {4, 1 << 30, 20}}});
  const std::vector<size_t> placement(2, 0);
  const RankSpeed speed = rank_speed(machine, placement, 1);
  EXPECT_EQ(speed.threads, 2);
  EXPECT_DOUBLE_EQ(speed.read_gb_s(1 << 30), 10);
  EXPECT_DOUBLE_EQ(speed.read_gb_s(1 << 19), 40);  // in a cache: both ranks together read 1 MiB
}

}  // namespace
}  // namespace coprime
