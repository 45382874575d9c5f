// coprime plan and probe as a person meets them: what a plan says a rank holds is what a rank holds; a machine that a
// probe measured can be planned with; what is wrong is said in one line.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/test_checkpoints.h"
#include "gguf_models.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

using nlohmann::json;

const std::string kModel = golden_directory("mini-qwen35").string();

json plan_of(const std::string& model, int ranks, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{"plan", "--model", model, "--ranks", std::to_string(ranks), "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramResult result = run_program(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return json::parse(result.out);
}

void expect_the_bytes_of_a_run(const std::string& model, int ranks, std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{
      "bench",           "--model", model,      "--ranks", std::to_string(ranks), "--json", "--prompt-tokens", "4",
      "--decode-tokens", "2",       "--repeat", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const ProgramResult result = run_program(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json run = json::parse(result.out), plan = plan_of(model, ranks, more);
  int64_t step_bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const json& planned = plan["memory_by_rank"][static_cast<size_t>(rank)];
    EXPECT_EQ(planned["weight_bytes"], run["ranks"][static_cast<size_t>(rank)]["weight_bytes"])
        << model << " rank " << rank << " of " << ranks;
    // Six tokens stand in one page of 64.
    EXPECT_EQ(planned["kv_bytes_per_token"].get<int64_t>() * 64 + planned["state_bytes"].get<int64_t>(),
              run["ranks"][static_cast<size_t>(rank)]["cache_bytes"])
        << model << " rank " << rank << " of " << ranks;
    step_bytes += planned["step_weight_bytes"].get<int64_t>();
  }
  EXPECT_EQ(step_bytes, run["step_weight_bytes"]) << model << " on " << ranks;
}

TEST(PlanCommand, says_the_bytes_that_each_rank_holds) {
  for (const int ranks : {1, 2, 3, 7}) expect_the_bytes_of_a_run(kModel, ranks);
  expect_the_bytes_of_a_run(kModel, 2, {"--pad-for", "3"});
  expect_the_bytes_of_a_run(kModel, 3, {"--exact"});
  expect_the_bytes_of_a_run(golden_directory("llama-9q3kv-tied").string(), 2);
  for (const std::string kv : {"f16", "fp8"}) expect_the_bytes_of_a_run(kModel, 2, {"--kv", kv});
  expect_the_bytes_of_a_run(golden_directory("qwen2-14q2kv-bias").string(), 4);
}

TEST(PlanCommand, says_the_bytes_of_gguf_files_whose_blocks_two_ranks_hold) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "model.gguf";
  for (const DType type : {DType::kQ4_1, DType::kQ4_K}) {
    write_random_gguf(golden_directory("llama-9q3kv-tied"), file, type, false);
    for (const int ranks : {1, 2, 3}) expect_the_bytes_of_a_run(file.string(), ranks);
  }
}

// A config alone counts as a checkpoint of the format would.
TEST(PlanCommand, needs_no_weights) {
  const TemporaryFolder folder;
  std::filesystem::copy_file(std::filesystem::path(kModel) / "config.json", folder / "config.json");
  const json alone = plan_of(folder.path().string(), 3), whole = plan_of(kModel, 3);
  EXPECT_EQ(alone["memory_by_rank"], whole["memory_by_rank"]);
  EXPECT_EQ(alone["format"], "bf16");
}

TEST(PlanCommand, says_the_bytes_of_quantised_checkpoints) {
  const TemporaryFolder folder;
  for (const std::string format : {"mxfp4", "fp8-block", "fp8-channel"}) {
    const std::string out = (folder / format).string();
    const ProgramResult made = run_program({"quantize", "--model", kModel, "--to", format, "--out", out});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(plan_of(out, 3)["format"], format);
    for (const int ranks : {1, 3}) expect_the_bytes_of_a_run(out, ranks);
  }
}

TEST(PlanCommand, says_which_kernel_each_operation_has_and_why_not_another) {
  const json plan = plan_of(kModel, 3, {"--kernels", "--isa", "reference", "--kv", "fp8"});
  const json& linear = plan["kernels"][0];
  EXPECT_EQ(linear["operation"], "linear");
  EXPECT_EQ(linear["format"], "BF16");
  EXPECT_EQ(linear["chosen"], "reference");
  bool told = false;
  for (const json& other : linear["others"])
    told =
        told || (other["name"] == "linear avx2 BF16" && other["reason"] == "needs avx2, the best to use is reference");
  EXPECT_TRUE(told) << linear;
  EXPECT_EQ(plan["kernels"][1]["format"], "F8_E4M3");
  const ProgramResult text = run_program({"plan", "--model", kModel, "--ranks", "3", "--kernels"});
  EXPECT_NE(text.out.find("kernels of this CPU, --math split"), std::string::npos) << text.out;
}

TEST(PlanCommand, plans_for_a_mixture_of_gguf_types_and_says_that_it_is_about) {
  const json plan = plan_of("llama-3.1-8b", 3, {"--format", "Q4_K_M", "--kernels"});
  EXPECT_EQ(plan["format"], "q4_k_m");
  EXPECT_NE(plan["format_source"].get<std::string>().find("about"), std::string::npos) << plan["format_source"];
  EXPECT_EQ(plan["kernels"][0]["format"], "Q4_K");
  EXPECT_EQ(plan["kernels"][1]["format"], "Q6_K");
}

TEST(PlanCommand, writes_a_picture) {
  const TemporaryFolder folder;
  const std::filesystem::path svg = folder / "who.svg";
  plan_of(kModel, 3, {"--svg", svg.string()});
  std::ifstream file(svg);
  std::string line;
  std::getline(file, line);
  EXPECT_TRUE(line.starts_with("<svg ")) << line;
}

TEST(PlanCommand, says_in_one_line_what_is_wrong) {
  const TemporaryFolder folder;
  const auto refusal = [&](std::vector<std::string> more, int exit_code) {
    std::vector<std::string> arguments{"plan", "--model", kModel, "--ranks", "3"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    return result.err;
  };
  const std::string bad = (folder / "bad.json").string();
  std::ofstream(bad) << R"({"hosts": [{"cores": "many"}]})";
  EXPECT_EQ(refusal({"--machine", bad}, 3),
            "coprime: " + bad + ": hosts[0].cores is \"many\"; expected an integer in 1..65536\n");
  const ProgramResult nameless = run_program({"plan", "--model", "gpt-9", "--ranks", "2"});
  EXPECT_EQ(nameless.exit_code, 2);
  EXPECT_NE(nameless.err.find("gpt-9: no such folder or file, and no name of a model; names are smollm2-135m"),
            std::string::npos);
  EXPECT_NE(refusal({"--machine", "toaster"}, 2).find("none of the typical machines desktop"), std::string::npos);
  EXPECT_NE(refusal({"--memory", "much"}, 2).find("--memory: expected bytes up to 1024T, such as 24G"),
            std::string::npos);
  EXPECT_NE(refusal({"--format", "fp2"}, 2).find("fp2 is no format that coprime knows; expected one of bf16"),
            std::string::npos);
  EXPECT_NE(refusal({"--format", "q4_k_s"}, 2).find("q6_k, q4_k_m, q5_k_m"), std::string::npos);
  EXPECT_NE(refusal({"--svg", kModel + "/config.json"}, 2).find("this run reads it"), std::string::npos);
  const std::string links = (folder / "links.json").string();
  std::ofstream(links) << R"({"links": [{"link": "1g"}]})";
  EXPECT_NE(refusal({"--machine", links, "--svg", links}, 2).find("this run reads it"), std::string::npos);
  const std::filesystem::path drafter = folder / "drafter";
  std::filesystem::create_directory(drafter);
  std::filesystem::copy_file(std::filesystem::path(kModel) / "config.json", drafter / "config.json");
  EXPECT_NE(refusal({"--drafter", drafter.string(), "--svg", (drafter / "config.json").string()}, 2).find("reads it"),
            std::string::npos);
  EXPECT_NE(refusal({"--machine", "h200", "--machine", "desktop"}, 2).find("--machine h200 and --machine desktop"),
            std::string::npos);
  EXPECT_EQ(run_program({"plan", "--model", kModel, "--ranks", "3", "--machine", links, "--machine", "h200"}).exit_code,
            0);
}

TEST(PlanCommand, reads_memory_with_and_without_a_b) {
  for (const char* text : {"24G", "24GB", "24GiB"})
    EXPECT_EQ(plan_of(kModel, 3, {"--memory", text})["memory_bytes"], int64_t{24} << 30) << text;
  for (const char* text : {"24B", "24iB", "24GBs", "24Gi"})
    EXPECT_EQ(run_program({"plan", "--model", kModel, "--ranks", "3", "--memory", text}).exit_code, 2) << text;
}

TEST(ProbeCommand, writes_over_no_file_but_one_of_a_machine) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "thesis.json";
  std::ofstream(file) << "{\"chapter\": 1}";
  const ProgramResult probe = run_program({"probe", "--out", file.string()});
  EXPECT_EQ(probe.exit_code, 2) << probe.err;
  EXPECT_NE(probe.err.find("no file of a machine"), std::string::npos) << probe.err;
  EXPECT_NE(probe.err.find("name another file, or remove it"), std::string::npos) << probe.err;
  std::ifstream again(file);
  std::string line;
  std::getline(again, line);
  EXPECT_EQ(line, "{\"chapter\": 1}");
}

TEST(ProbeCommand, measures_a_machine_that_a_plan_reads) {
  const TemporaryFolder folder;
  const std::string file = (folder / "here.json").string();
  std::ofstream(file) << R"({"links": [{"link": "1g"}]})";  // an earlier one, which it may write over
  const ProgramResult probe = run_program({"probe", "--out", file});
  ASSERT_EQ(probe.exit_code, 0) << probe.err;
  const json plan = plan_of(kModel, 2, {"--machine", file});
  EXPECT_TRUE(plan["machine"]["measured"]);
  EXPECT_GT(plan["step"]["gates_ms"], 0);
  EXPECT_GT(plan["step"]["weights_ms"], 0);
  EXPECT_GT(plan["step"]["layers_ms"], 0);
}

}  // namespace
}  // namespace coprime
