// GGUF models in whole worlds: the golden models as a converter would write them, every format in blocks against the
// same numbers in F32, and a real file against transformers.
#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/safetensors.h"
#include "checkpoint/test_checkpoints.h"
#include "gguf_models.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

std::vector<float> logits_at(const Golden& golden, const std::filesystem::path& file, int ranks, bool exact = false,
                             Dummies dummies = Dummies::kSkipped) {
  WorldOptions options = thread_world(golden, ranks);
  options.model = file;
  options.plan.exact = exact;
  options.plan.dummies = dummies;
  return logits_of(options, golden.cases[0]);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ConvertedGoldens : public testing::TestWithParam<std::string> {
 protected:
  ConvertedGoldens() { write_gguf(golden_.directory, file_); }
  const Golden golden_ = read_golden(GetParam());
  const TemporaryFolder folder_;
  const std::filesystem::path file_ = folder_ / "model.gguf";
};

TEST_P(ConvertedGoldens, logits_are_those_of_transformers_at_every_rank_count) {
  for (int ranks : {1, 2, 3, 4, 7}) {
    const auto logits = logits_at(golden_, file_, ranks);
    EXPECT_LE(largest_difference(logits, golden_.cases[0].logits), 1e-4f) << ranks;
  }
}

TEST_P(ConvertedGoldens, exact_mode_keeps_the_bits) {
  const auto expected = logits_at(golden_, file_, 1, true);
  EXPECT_LE(largest_difference(expected, golden_.cases[0].logits), 1e-4f);
  for (int ranks : {2, 3, 5}) EXPECT_TRUE(same_bits(logits_at(golden_, file_, ranks, true), expected)) << ranks;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Models, ConvertedGoldens,
                         testing::Values("llama-9q3kv-tied", "qwen2-14q2kv-bias", "qwen35-6q2kv-gdn4-12",
                                         "qwen3-10q2kv-untied", "llama3-rope-untied", "mini-qwen35"),
                         name_of);

// The embedded model's heads, blocks of 256 and 32 fall across each other at every rank count above one.
class BlockWorlds : public testing::TestWithParam<DType> {
 protected:
  const Golden golden_ = [] {
    Golden golden = read_golden("mini-qwen35");
    GoldenCase& c = golden.cases[0];
    c.length = std::min<int64_t>(c.length, 24);
    c.ids.resize(static_cast<size_t>(c.length));
    return golden;
  }();
  const TemporaryFolder folder_;
};

TEST_P(BlockWorlds, blocks_give_the_logits_of_the_same_numbers_in_f32_at_every_rank_count) {
  const auto blocks = folder_ / "blocks.gguf", floats = folder_ / "floats.gguf";
  write_random_gguf(golden_.directory, blocks, GetParam(), false);
  write_random_gguf(golden_.directory, floats, GetParam(), true);
  const auto expected = logits_at(golden_, floats, 1);
  float size = 0;
  for (float logit : expected) size = std::max(size, std::abs(logit));
  ASSERT_GT(size, 0.1f);
  ASSERT_LT(size, 1e4f);
  for (int ranks : {1, 2, 3, 4, 7})
    EXPECT_LE(largest_difference(logits_at(golden_, blocks, ranks), expected), 2e-4f * size) << ranks;
  EXPECT_LE(largest_difference(logits_at(golden_, blocks, 3, false, Dummies::kHeld), expected), 2e-4f * size);
}

// Where no column moves, one rank adds in one order, whatever the format.
TEST_P(BlockWorlds, one_rank_gives_the_bits_of_the_same_numbers_in_f32) {
  const Golden golden = read_golden("qwen3-10q2kv-untied");
  const auto blocks = folder_ / "blocks.gguf", floats = folder_ / "floats.gguf";
  write_random_gguf(golden.directory, blocks, GetParam(), false);
  write_random_gguf(golden.directory, floats, GetParam(), true);
  EXPECT_TRUE(same_bits(logits_at(golden, blocks, 1), logits_at(golden, floats, 1)));
}

TEST_P(BlockWorlds, exact_mode_keeps_the_bits) {
  const auto blocks = folder_ / "blocks.gguf";
  write_random_gguf(golden_.directory, blocks, GetParam(), false);
  const auto expected = logits_at(golden_, blocks, 1, true);
  for (int ranks : {2, 3, 4}) EXPECT_TRUE(same_bits(logits_at(golden_, blocks, ranks, true), expected)) << ranks;
}

INSTANTIATE_TEST_SUITE_P(Formats, BlockWorlds,
                         testing::Values(DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                                         DType::kQ2_K, DType::kQ3_K, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K,
                                         DType::kMxfp4),
                         [](const auto& which) { return std::string(dtype_name(which.param)); });

// SmolLM2-135M-Instruct in Q4_1, as scripts/fetch_smollm2 brings it: 9 query and 3 KV heads.
class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(std::filesystem::exists(file_)) << "run scripts/fetch_smollm2 " << file_;
    const auto golden = SafetensorsFile::open(golden_directory("smollm2-gguf") / "golden.safetensors");
    prompt_ = read<int32_t>(golden, "prompt");
    greedy_ = read<int32_t>(golden, "greedy");
    ids_ = read<int32_t>(golden, "ids");
    margin_ = read<float>(golden, "margin");
    logits_ = read<float>(golden, "logits");
  }

  template <class T>
  static std::vector<T> read(const SafetensorsFile& file, const std::string& name) {
    const TensorInfo* tensor = file.find(name);
    std::vector<T> values(tensor->bytes / sizeof(T));
    file.read(tensor->offset, std::as_writable_bytes(std::span(values)));
    return values;
  }
  WorldOptions world(int ranks) const {
    WorldOptions options = thread_world({}, ranks);
    options.model = file_;
    return options;
  }

  const std::filesystem::path file_ = COPRIME_BINARY_DIR "/smollm2.gguf";
  std::vector<int32_t> prompt_, greedy_, ids_;
  std::vector<float> margin_, logits_;  // of every 16th id
};

TEST_F(SmolLm2, logits_are_those_of_transformers_at_every_rank_count) {
  constexpr size_t kStride = 16;
  for (int ranks : {1, 2, 3, 4}) {
    Front front(world(ranks));
    const auto all = teacher_forced_logits(front, ids_, 1, static_cast<int64_t>(ids_.size()));
    std::vector<float> some;
    for (size_t i = 0; i < all.size(); i += kStride) some.push_back(all[i]);
    const float worst = largest_difference(some, logits_);
    EXPECT_LE(worst, 5e-4f) << ranks;
    RecordProperty(fmt::format("largest_difference_{}", ranks), fmt::format("{:.3g}", worst));
  }
}

TEST_F(SmolLm2, greedy_tokens_are_those_of_transformers_wherever_the_margin_is_clear) {
  for (int ranks : {1, 2}) {
    Front front(world(ranks));
    const Generation generation = generate(front, {.prompt = prompt_, .max_tokens = 48, .eos = {2}});
    const auto place = std::ranges::mismatch(generation.ids, greedy_).in2 - greedy_.begin();
    if (greedy_[static_cast<size_t>(place)] == 2 && generation.ids.size() == static_cast<size_t>(place)) continue;
    EXPECT_LE(margin_[static_cast<size_t>(place)], 1e-3f) << "after " << place << " tokens on " << ranks;
  }
}

TEST_F(SmolLm2, exact_mode_keeps_the_bits) {
  GoldenCase c{1, 6, {ids_.begin(), ids_.begin() + 6}, {}};
  WorldOptions options = world(1);
  options.plan.exact = true;
  const auto expected = logits_of(options, c);
  for (int ranks : {2, 3, 4}) {
    options.plan.ranks = ranks;
    EXPECT_TRUE(same_bits(logits_of(options, c), expected)) << ranks;
  }
}

TEST_F(SmolLm2, answers_on_the_command_line_with_the_prompt_that_its_template_makes) {
  const ProgramResult run = run_program({"generate", "--model", file_, "--ranks", "2", "--chat",
                                         "Write one sentence about the sea.", "--max-tokens", "8", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find(fmt::format("\"ids\":[{}]", fmt::join(greedy_.begin(), greedy_.begin() + 8, ","))),
            std::string::npos)
      << run.out;
  EXPECT_NE(run.out.find(fmt::format("\"prompt_tokens\":{}", prompt_.size())), std::string::npos) << run.out;
}

TEST_F(SmolLm2, cut_short_it_is_refused_on_the_command_line) {
  const TemporaryFolder folder;
  const auto cut = folder / "cut.gguf";
  std::filesystem::copy_file(file_, cut);
  std::filesystem::resize_file(cut, 50'000'000);
  const ProgramResult run = run_program({"generate", "--model", cut, "--ranks", "2", "--chat", "Hello"});
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_NE(run.err.find("is the file cut short?"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace coprime
