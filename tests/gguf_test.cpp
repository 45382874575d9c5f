// GGUF models in whole worlds: the golden models as a converter would write them, every format in blocks against the
// same numbers in F32, and a real file against transformers.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "checkpoint/safetensors.h"
#include "checkpoint/test_checkpoints.h"
#include "gguf_models.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

std::vector<float> logits_at(const Golden& golden, const std::filesystem::path& file, int ranks, bool exact = false,
                             Dummies dummies = Dummies::kSkipped, MathMode math = MathMode::kF32) {
  WorldOptions options = thread_world(golden, ranks);
  options.math = math;
  options.model = file;
  options.plan.exact = exact;
  options.plan.dummies = dummies;
  return logits_of(options, golden.cases[0]);
}

// Of two rows of logits, in nats.
double kl_divergence(std::span<const float> expected, std::span<const float> found) {
  const auto log_sum = [](std::span<const float> row) {
    const double largest = *std::ranges::max_element(row);
    double sum = 0;
    for (const float logit : row) sum += std::exp(logit - largest);
    return largest + std::log(sum);
  };
  const double of_expected = log_sum(expected), of_found = log_sum(found);
  double divergence = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double log_p = expected[i] - of_expected;
    divergence += std::exp(log_p) * (log_p - (found[i] - of_found));
  }
  return divergence;
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

TEST_P(BlockWorlds, exact_mode_keeps_the_bits_of_integers) {
  const auto blocks = folder_ / "blocks.gguf";
  write_random_gguf(golden_.directory, blocks, GetParam(), false);
  for (const MathMode math : {MathMode::kSplit, MathMode::kFast}) {
    const auto expected = logits_at(golden_, blocks, 1, true, Dummies::kSkipped, math);
    for (int ranks : {2, 3, 4})
      EXPECT_TRUE(same_bits(logits_at(golden_, blocks, ranks, true, Dummies::kSkipped, math), expected)) << ranks;
  }
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
  WorldOptions world(int ranks, MathMode math = MathMode::kF32) const {
    WorldOptions options = thread_world({}, ranks);
    options.model = file_;
    options.math = math;
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

// The bounds are those of activations of 15 bits in transformers, with room: 2.1e-2 and 7.6e-7.
TEST_F(SmolLm2, the_default_arithmetic_is_close_to_that_of_f32_at_every_rank_count) {
  const auto logits = [&](int ranks, MathMode math) {
    Front front(world(ranks, math));
    return teacher_forced_logits(front, ids_, 1, static_cast<int64_t>(ids_.size()));
  };
  const auto expected = logits(1, MathMode::kF32);
  const size_t vocab = expected.size() / ids_.size();
  for (int ranks : {1, 2, 3, 4}) {
    const auto split = logits(ranks, MathMode::kSplit);
    const float worst = largest_difference(split, expected);
    double divergence = 0;
    for (size_t row = 0; row < ids_.size(); ++row)
      divergence +=
          kl_divergence(std::span(expected).subspan(row * vocab, vocab), std::span(split).subspan(row * vocab, vocab));
    divergence /= static_cast<double>(ids_.size());
    EXPECT_LE(worst, 3e-2f) << ranks;
    EXPECT_LE(divergence, 2e-6) << ranks;
    RecordProperty(fmt::format("largest_difference_{}", ranks), fmt::format("{:.3g}", worst));
    RecordProperty(fmt::format("mean_kl_{}", ranks), fmt::format("{:.3g}", divergence));
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

TEST_F(SmolLm2, without_an_end_or_a_chat_template_it_says_so_on_the_command_line) {
  const TemporaryFolder folder;
  const auto copy = folder / "model.gguf";
  std::filesystem::copy_file(file_, copy);
  std::fstream stream(copy, std::ios::in | std::ios::out | std::ios::binary);
  std::string head(4 << 20, 0);
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  for (const std::string key : {"tokenizer.ggml.eos_token_id", "tokenizer.chat_template"}) {
    const size_t at = head.find(key);
    ASSERT_NE(at, std::string::npos) << key;
    stream.seekp(static_cast<std::streamoff>(at));
    stream << std::string(key.size(), 'x');  // a key that nobody knows
  }
  stream.close();
  const ProgramResult result =
      run_program({"generate", "--model", copy.string(), "--prompt", "Hi", "--max-tokens", "4", "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("names no token that ends a text"), std::string::npos) << result.err;
  const ProgramResult chat = run_program({"generate", "--model", copy.string(), "--chat", "Hi"});
  EXPECT_EQ(chat.exit_code, 3) << chat.err;
  EXPECT_NE(chat.err.find("has no chat template"), std::string::npos) << chat.err;
  const ProgramResult whole =
      run_program({"generate", "--model", file_.string(), "--chat", "Hi", "--max-tokens", "4", "--temperature", "0"});
  EXPECT_EQ(whole.err, "");
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
