#include "cli/outputs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace coprime {
namespace {

class Outputs : public testing::Test {
 protected:
  Outputs() { std::filesystem::create_directories(model_); }
  ~Outputs() override { std::filesystem::remove_all(model_); }
  bool refused(const std::string& name) const {
    std::ofstream(model_ / name) << "there";
    try {
      check_output_flag("--out", model_ / name, {model_});
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return true;
    }
  }
  const std::filesystem::path model_ =
      std::filesystem::path(testing::TempDir()) / ("outputs-" + std::to_string(::getpid()));
};

TEST_F(Outputs, never_stand_in_the_place_of_a_file_of_the_model) {
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "tool_use.jinja",
        "tokenizer.model", "preprocessor_config.json", "model.safetensors.index.json", "model.safetensors",
        "model-00001-of-00002.safetensors", "model.gguf", "pytorch_model.bin"})
    EXPECT_TRUE(refused(name)) << name;
}

TEST_F(Outputs, may_lie_beside_them_and_be_written_again) {
  for (const char* name : {"answers.jsonl", "trace.json", "who.svg", "report.json"})
    EXPECT_FALSE(refused(name)) << name;
}

TEST_F(Outputs, replace_their_own_kind_and_empty_files_alone) {
  const auto refusal = [&](const std::string& name, bool is_one) {
    try {
      check_replaces("--oplog", model_ / name, "op_log", [&](const std::filesystem::path&) { return is_one; });
      return std::string();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return std::string(error.what());
    }
  };
  EXPECT_EQ(refusal("new", false), "");
  std::ofstream(model_ / "empty");
  EXPECT_EQ(refusal("empty", false), "");
  std::ofstream(model_ / "letter") << "Dear Ada";
  EXPECT_EQ(refusal("letter", true), "");
  EXPECT_NE(refusal("letter", false).find("letter: it exists and is no op_log"), std::string::npos);
}

}  // namespace
}  // namespace coprime
