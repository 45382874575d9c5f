// coprime synth as a person meets it: what it makes is read by everything else, and is the same whatever makes it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/test_checkpoints.h"
#include "program.h"
#include "tools/synth.h"
#include "worlds.h"

namespace coprime {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Everything in a folder, by name.
std::map<std::string, std::string> files_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files[entry.path().filename().string()] = contents(entry.path());
  return files;
}

const std::string kGoldens[] = {"llama-9q3kv-tied", "llama3-rope-untied", "qwen2-14q2kv-bias", "qwen3-10q2kv-untied",
                                "mini-qwen35"};

TEST(Synth, every_family_loads_and_its_logits_are_sane) {
  for (const std::string& golden : kGoldens) {
    const TemporaryFolder scratch;
    const auto model = scratch / "model";
    const ProgramResult made =
        run_program({"synth", "--config", golden_directory(golden).string(), "--out", model.string()});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    const ModelShape shape = read_model_shape(model);
    const std::vector<int32_t> ids{1, 5, 2, 7, 3, 3, 8, 4};
    const auto ids_file = scratch / "ids.safetensors", out = scratch / "logits.safetensors";
    const TensorToWrite tensor{"ids", DType::kI32, {1, 8}, std::as_bytes(std::span(ids))};
    write_safetensors(ids_file, {&tensor, 1});
    const ProgramResult run = run_program({"logits", "--model", model.string(), "--ids", ids_file.string() + ":ids",
                                           "--ranks", "3", "--out", out.string()});
    ASSERT_EQ(run.exit_code, 0) << golden << ": " << run.err;
    const SafetensorsFile file = SafetensorsFile::open(out);
    std::vector<float> logits(file.tensors()[0].bytes / 4);
    file.read(file.tensors()[0].offset, std::as_writable_bytes(std::span(logits)));
    ASSERT_EQ(static_cast<int64_t>(logits.size()), 8 * shape.vocab);
    double squares = 0;
    for (float value : logits) {
      ASSERT_TRUE(std::isfinite(value)) << golden;
      squares += static_cast<double>(value) * static_cast<double>(value);
    }
    const double deviation = std::sqrt(squares / static_cast<double>(logits.size()));
    EXPECT_GT(deviation, 0.01) << golden;
    EXPECT_LT(deviation, 10) << golden;
  }
}

TEST(Synth, generates_with_the_tokenizer_of_the_folder_that_it_copies) {
  const TemporaryFolder scratch;
  const auto model = scratch / "model";
  const ProgramResult made = run_program(
      {"synth", "--config", golden_directory("mini-qwen35").string(), "--layers", "4", "--out", model.string()});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_EQ(made.out.find("tokenizer"), std::string::npos) << made.out;
  const ProgramResult run = run_program({"generate", "--model", model.string(), "--prompt", "a", "--max-tokens", "4"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(read_model_shape(model).layers, 4);
}

TEST(Synth, makes_the_same_bytes_for_a_seed_whatever_the_threads) {
  const TemporaryFolder scratch;
  const auto make = [&](const char* name, int threads, uint64_t seed) {
    make_checkpoint({.source = golden_directory("mini-qwen35").string(),
                     .out = scratch / name,
                     .options = {SynthFormat::kFp8Channel},
                     .seed = seed,
                     .threads = threads,
                     .file_bytes = 2'000'000});
    return files_of(scratch / name);
  };
  const auto expected = make("one", 1, 7);
  EXPECT_GT(expected.size(), 6u);  // several files of tensors
  EXPECT_EQ(make("two", 2, 7), expected);
  EXPECT_EQ(make("five", 5, 7), expected);
  EXPECT_NE(make("other", 1, 8), expected);
}

TEST(Synth, files_and_index_are_those_of_a_checkpoint) {
  const TemporaryFolder scratch;
  make_checkpoint(
      {.source = golden_directory("llama3-rope-untied").string(), .out = scratch / "model", .file_bytes = 60'000});
  const ModelShape shape = read_model_shape(scratch / "model");
  const Tally tally = check_checkpoint(Checkpoint::open(scratch / "model"), ShardPlan(shape, {.ranks = 3}));
  EXPECT_TRUE(tally.unused.empty());
  EXPECT_FALSE(std::filesystem::exists(scratch / "model/model.safetensors"));
}

TEST(Synth, headers_alone_take_no_room) {
  const TemporaryFolder scratch;
  const ProgramResult made =
      run_program({"synth", "--config", "llama-3.1-8b", "--headers-only", "--out", (scratch / "model").string()});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  int64_t bytes = 0, blocks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "model")) {
    struct stat status {};
    ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
    bytes += status.st_size;
    blocks += status.st_blocks;
  }
  EXPECT_GT(bytes, 16'000'000'000);
  EXPECT_LT(blocks * 512, 1'000'000);
  const ModelShape shape = read_model_shape(scratch / "model");
  check_checkpoint(Checkpoint::open(scratch / "model"), ShardPlan(shape, {.ranks = 3}));
}

ProgramResult synth(const std::string& config, const std::filesystem::path& out, void (*setup)() = nullptr) {
  return run_program({"synth", "--config", config, "--out", out.string()}, setup);
}

void expect_message(const ProgramResult& result, int exit_code, const std::vector<std::string>& words) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  for (const std::string& word : words) EXPECT_NE(result.err.find(word), std::string::npos) << result.err;
}

TEST(Synth, never_writes_over_a_folder_that_holds_something) {
  const TemporaryFolder scratch;
  write_bytes(scratch / "note.txt", "mine");
  expect_message(synth("smollm2-135m", scratch.path()), 2, {"holds something", "name a new folder"});
  expect_message(synth("smollm2-135m", scratch / "note.txt"), 2, {"holds something"});
  EXPECT_EQ(files_of(scratch.path()), (std::map<std::string, std::string>{{"note.txt", "mine"}}));
}

TEST(Synth, leaves_nothing_behind_when_the_disk_is_full) {
  const TemporaryFolder scratch;
  const auto limit = [] {
    const struct rlimit most { 1'000'000, 1'000'000 };
    ::setrlimit(RLIMIT_FSIZE, &most);
  };
  expect_message(synth(golden_directory("mini-qwen35").string(), scratch / "new", limit), 3,
                 {"model.safetensors: cannot be written: File too large"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "new"));
}

TEST(Synth, says_early_that_the_disk_has_no_room) {
  const TemporaryFolder scratch;
  const std::string config = R"({"architectures":["LlamaForCausalLM"],"hidden_size":1048576,"intermediate_size":1048576,
    "num_hidden_layers":4096,"num_attention_heads":8192,"num_key_value_heads":8192,"vocab_size":1000,"head_dim":128,
    "max_position_embeddings":1000})";
  std::filesystem::create_directory(scratch / "config");
  write_bytes(scratch / "config/config.json", config);
  expect_message(synth((scratch / "config").string(), scratch / "new"), 3,
                 {"the weights take", "are free there", "--headers-only"});
  EXPECT_FALSE(std::filesystem::exists(scratch / "new"));
}

TEST(Synth, names_what_it_cannot_make) {
  const TemporaryFolder scratch;
  expect_message(synth("llama-9", scratch / "new"), 2, {"no shape is named \"llama-9\"", "llama-3.1-8b"});
  expect_message(synth("deepseek-v3", scratch / "new"), 2, {"deepseek-v3 is a shape to plan with"});
  expect_message(synth(scratch.path().string(), scratch / "new"), 3, {"config.json: No such file"});
}

}  // namespace
}  // namespace coprime
