#include "engine/generation_config.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace coprime {
namespace {

class Directory {
 public:
  Directory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "coprime-config-XXXXXX").string();
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(path_ / file) << text; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(GenerationConfig, gives_sampling_and_every_eos_id) {
  const Directory directory;
  directory.write(
      "generation_config.json",
      R"({"eos_token_id": [248046, 248044], "temperature": 0.7, "top_k": 20, "top_p": 0.95, "do_sample": true})");
  const GenerationConfig config = read_generation_config(directory.path());
  EXPECT_EQ(config.eos, (std::vector<int32_t>{248046, 248044}));
  EXPECT_EQ(config.sampling.temperature, 0.7);
  EXPECT_EQ(config.sampling.top_k, 20);
  EXPECT_EQ(config.sampling.top_p, 0.95);
}

TEST(GenerationConfig, samples_where_the_file_states_how_and_is_greedy_where_it_says_so) {
  const Directory directory;
  directory.write("generation_config.json", R"({"temperature": 0.6})");
  EXPECT_EQ(read_generation_config(directory.path()).sampling.temperature, 0.6);
  directory.write("generation_config.json", R"({"temperature": 0.6, "do_sample": false})");
  EXPECT_EQ(read_generation_config(directory.path()).sampling.temperature, 0);
  directory.write("generation_config.json", R"({"eos_token_id": 1})");
  EXPECT_EQ(read_generation_config(directory.path()).sampling.temperature, 0);
}

TEST(GenerationConfig, falls_back_to_the_eos_of_the_config) {
  const Directory directory;
  directory.write("config.json", R"({"text_config": {"eos_token_id": 9}})");
  EXPECT_EQ(read_generation_config(directory.path()).eos, (std::vector<int32_t>{9}));
  directory.write("config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_EQ(read_generation_config(directory.path()).eos, (std::vector<int32_t>{3, 4}));
}

TEST(GenerationConfig, that_is_not_what_it_should_be_is_refused) {
  const Directory directory;
  for (const char* text :
       {"", "[", "[]", "{\"eos_token_id\": -1}", "{\"eos_token_id\": \"a\"}", "{\"eos_token_id\": 1e30}",
        "{\"temperature\": \"hot\"}", "{\"temperature\": -1}", "{\"top_p\": 7, \"temperature\": 1}",
        "{\"top_k\": 1, \"top_k\": 2}", "{\"top_k\": -2, \"temperature\": 1}"}) {
    directory.write("generation_config.json", text);
    try {
      read_generation_config(directory.path());
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_NE(std::string(error.what()).find("generation_config.json"), std::string::npos) << error.what();
    }
  }
  directory.write("generation_config.json", std::string(100'000, '['));
  EXPECT_THROW(read_generation_config(directory.path()), Error);
}

}  // namespace
}  // namespace coprime
