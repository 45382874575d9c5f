// What a person sees who asks where the time goes: a trace of all ranks, the gates' profile, the gates' order.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

ProgramResult generate_on_three(std::vector<std::string> more, const std::string& prompt = "Sam has") {
  std::vector<std::string> arguments{
      "generate",      "--model", golden_directory("mini-qwen35").string(), "--ranks", "3", "--prompt", prompt,
      "--temperature", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments);
}

struct Slice {
  std::string name;
  double begin_us, end_us;
  nlohmann::json args;
};

// The slices of each track, in the order of their begins, the longer first.
std::map<int, std::vector<Slice>> read_trace(const std::filesystem::path& path) {
  const auto json = nlohmann::json::parse(std::ifstream(path));
  std::map<int, std::vector<Slice>> tracks;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin_us = event["ts"], duration_us = event["dur"];
    tracks[event["tid"]].push_back({event["name"], begin_us, begin_us + duration_us, event["args"]});
  }
  for (auto& [track, slices] : tracks) {
    std::ranges::stable_sort(slices, [](const Slice& a, const Slice& b) {
      return std::pair(a.begin_us, -a.end_us) < std::pair(b.begin_us, -b.end_us);
    });
  }
  return tracks;
}

// Perfetto draws a slice below the one that holds it; two that overlap otherwise it cannot draw.
void expect_nested(const std::vector<Slice>& slices) {
  constexpr double kRoundingUs = 0.0005;
  std::vector<double> open;
  for (const Slice& slice : slices) {
    while (!open.empty() && open.back() <= slice.begin_us + kRoundingUs) open.pop_back();
    if (!open.empty()) {
      EXPECT_LE(slice.end_us, open.back() + kRoundingUs) << slice.name << " at " << slice.begin_us;
    }
    open.push_back(slice.end_us);
  }
}

// The slices of a phase by their sequence.
std::map<int64_t, Slice> phases(const std::vector<Slice>& slices, const std::string& name) {
  std::map<int64_t, Slice> found;
  for (const Slice& slice : slices) {
    if (slice.name == name) found.emplace(slice.args["sequence"].get<int64_t>(), slice);
  }
  return found;
}

TEST(Trace, of_a_token_shows_every_gate_on_every_rank_on_one_clock) {
  const ModelCopy folder(golden_directory("mini-qwen35"));
  const std::filesystem::path path = folder.path() / "trace.json";
  const ProgramResult result = generate_on_three({"--max-tokens", "5", "--trace", path.string()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out, generate_on_three({"--max-tokens", "5"}).out);

  const auto tracks = read_trace(path);
  ASSERT_EQ(tracks.size(), 4u);  // the front, and three ranks
  const auto publishes = phases(tracks.at(1), "publish");
  const auto config = nlohmann::json::parse(std::ifstream(folder.path() / "config.json"));
  const auto& text_config = config.contains("text_config") ? config["text_config"] : config;
  EXPECT_EQ(publishes.size(), 2 * (1 + 2 * text_config["num_hidden_layers"].get<size_t>()));  // two steps
  for (const auto& [track, slices] : tracks) expect_nested(slices);
  for (int rank = 0; rank < 3; ++rank) {
    const auto waits = phases(tracks.at(rank + 1), "wait");
    ASSERT_EQ(waits.size(), publishes.size());
    for (int peer = 0; peer < 3; ++peer) {
      for (const auto& [sequence, publish] : phases(tracks.at(peer + 1), "publish")) {
        ASSERT_TRUE(waits.contains(sequence));
        EXPECT_GE(waits.at(sequence).end_us, publish.begin_us) << "rank " << rank << " saw what was not yet sent";
      }
    }
  }
  const auto& front = tracks.at(0);
  ASSERT_EQ(front.size(), 2u);
  EXPECT_EQ(front[0].name, "prefill of 2 rows");
  EXPECT_EQ(front[1].name, "decode");
  EXPECT_EQ(front[0].args["step"].get<int>() + 2, front[1].args["step"].get<int>());  // the second step of decode
  for (int rank = 0; rank < 3; ++rank) {
    for (const Slice& slice : tracks.at(rank + 1)) {
      const Slice& step = slice.begin_us < front[1].begin_us ? front[0] : front[1];
      EXPECT_GE(slice.begin_us, step.begin_us);
      EXPECT_LE(slice.end_us, step.end_us);
    }
  }
}

TEST(Trace, of_an_answer_of_one_token_has_its_prefill_only) {
  const ModelCopy folder(golden_directory("mini-qwen35"));
  const std::filesystem::path path = folder.path() / "trace.json";
  EXPECT_EQ(generate_on_three({"--max-tokens", "1", "--trace", path.string()}).exit_code, 0);
  EXPECT_EQ(read_trace(path).at(0).size(), 1u);
  EXPECT_EQ(generate_on_three({"--max-tokens", "2", "--trace", path.string()}).exit_code, 0);
  EXPECT_EQ(read_trace(path).at(0).size(), 2u);  // the only step of decode
}

TEST(Trace, that_cannot_be_written_costs_one_warning_and_no_answer) {
  const std::string answer = generate_on_three({"--max-tokens", "5"}).out;
  const ModelCopy folder(golden_directory("mini-qwen35"));
  const std::filesystem::path path =
      folder.path() / std::string(250, 't');  // no room for what makes a name another one
  std::ofstream(path) << "an older trace";
  const ProgramResult result = generate_on_three({"--max-tokens", "5", "--trace", path.string()});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, answer);
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  for (const std::string& words :
       {std::string("coprime: warning: --trace"), path.string(), std::string("File name too long")})
    EXPECT_NE(result.err.find(words), std::string::npos) << result.err;
  EXPECT_EQ(std::filesystem::file_size(path), 14u);  // what was there is there
}

TEST(Trace, of_a_name_that_cannot_be_or_that_the_run_reads_is_refused_before_anything_starts) {
  const ModelCopy folder(golden_directory("mini-qwen35"));
  const std::string weights = (folder.path() / "model.safetensors").string();
  const auto bytes = std::filesystem::file_size(weights);
  for (const auto& [path, why, code] : {std::tuple<std::string, std::string, int>{"/dev/full", "no regular file", 3},
                                        {"/no/such/folder/trace.json", "no folder /no/such/folder", 3},
                                        {weights, "this run reads it", 2}}) {
    const ProgramResult result = run_program(
        {"generate", "--model", folder.path().string(), "--prompt", "a", "--max-tokens", "2", "--trace", path});
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_NE(result.err.find("--trace " + path), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
  }
  EXPECT_EQ(std::filesystem::file_size(weights), bytes);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(GateProfile, is_told_by_every_rank_for_every_kind_of_gate) {
  std::string prompt;  // of more than 430 / 8 tokens, a step each
  for (int i = 0; i < 60; ++i) prompt += " Sam";
  const ProgramResult result =
      generate_on_three({"--gate-profile", "--max-tokens", "1", "--prefill-chunk", "1"}, prompt);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (int rank = 0; rank < 3; ++rank) {
    for (const char* kind : {"ATTN", "FFN"}) {
      const std::string begin = fmt::format("coprime: rank {}: gate profile: {}: mean post ", rank, kind);
      EXPECT_NE(result.err.find(begin), std::string::npos) << result.err;
    }
  }
}

TEST(GateTrace, names_layer_gate_slot_and_sequence_of_every_gate) {
  const ProgramResult result = generate_on_three({"--gate-trace", "--max-tokens", "2"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::map<std::string, std::vector<std::string>> by_rank;
  for (const std::string& line : lines_of(result.err))
    by_rank[line.substr(0, line.find(": gate trace"))].push_back(line);
  ASSERT_EQ(by_rank.size(), 3u) << result.err;
  for (const auto& [rank, lines] : by_rank) {
    EXPECT_EQ(lines[0], rank + ": gate trace: gate EMBED, slot 0, sequence 1");
    EXPECT_EQ(lines[2], rank + ": gate trace: layer 0 gate FFN, slot 2, sequence 3");
    const size_t of_step = lines.size() / 2;  // prefill and one of decode
    EXPECT_EQ(lines[of_step], rank + fmt::format(": gate trace: gate EMBED, slot 0, sequence {}", of_step + 1));
  }
}

}  // namespace
}  // namespace coprime
