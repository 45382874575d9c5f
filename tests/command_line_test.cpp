// The command line as a person meets it: one line that says what was found, where, and what to do; the right exit code.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "checkpoint/test_checkpoints.h"
#include "engine/core_plan.h"
#include "program.h"
#include "worlds.h"

namespace coprime {
namespace {

const std::string kModel = golden_directory("mini-qwen35").string();
const std::string kQuestion =
    "Sam starts with 32 tickets. 9 of the tickets break. A friend gives Sam 31 tickets. Soon Sam has 5 times as many "
    "tickets. Sam buys 80 tickets. How many "
    "tickets are left with Sam?";

ProgramResult generate_with(std::vector<std::string> more, const std::string& model = kModel,
                            void (*setup)() = nullptr) {
  std::vector<std::string> arguments{"generate", "--model", model};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(arguments, setup);
}

// One line on standard error that begins with the program's name and holds each of the words.
void expect_refusal(const ProgramResult& result, int exit_code, const std::vector<std::string>& words) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_TRUE(result.err.starts_with("coprime: ")) << result.err;
  for (const std::string& word : words)
    EXPECT_NE(result.err.find(word), std::string::npos) << "\"" << word << "\" is not in: " << result.err;
}

TEST(Generate, answers_a_word_problem_on_three_ranks) {
  const ProgramResult result = generate_with({"--ranks", "3", "--chat", kQuestion, "--temperature", "0"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("#### 350"), std::string::npos) << result.out;
  EXPECT_EQ(result.err, "");
}

TEST(Generate, names_the_line_of_a_chat_template_that_it_cannot_run) {
  const ModelCopy model(kModel);
  model.write("chat_template.jinja", "{{ bos_token }}\n{{ messages | frobnicate }}");
  expect_refusal(generate_with({"--chat", "hi"}, model.path()), 3,
                 {"chat_template.jinja, line 2", "frobnicate", "--prompt"});
  model.write("chat_template.jinja", "{{ raise_exception('only in Latin') }}");
  expect_refusal(generate_with({"--chat", "hi"}, model.path()), 2, {"line 1", "only in Latin"});
}

TEST(Generate, takes_a_conversation_from_a_file) {
  const ModelCopy model(kModel);
  model.write("talk.json", R"([{"role": "user", "content": ")" + kQuestion + R"("}])");
  const ProgramResult result =
      generate_with({"--messages", model.path() / "talk.json", "--temperature", "0"}, model.path());
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("#### 350"), std::string::npos) << result.out;
  model.write("talk.json", R"([{"content": "hi"}])");
  expect_refusal(generate_with({"--messages", model.path() / "talk.json"}, model.path()), 2, {"talk.json", "role"});
}

TEST(Tokenize, gives_ids_and_names_a_bad_line) {
  const ModelCopy model(kModel);
  model.write("lines.jsonl", "{\"text\": \"a b\"}\n{\"text\": 3}\n");
  const ProgramResult result = run_program({"tokenize", "--model", kModel, "--jsonl", model.path() / "lines.jsonl"});
  EXPECT_EQ(result.out, "{\"ids\":[64,269]}\n");
  expect_refusal(result, 3, {"lines.jsonl, line 2", "a string"});
  EXPECT_EQ(run_program({"tokenize", "--model", kModel, "--decode", "--text", "64 269"}).out, "a b\n");
}

TEST(Tokenize, shows_a_conversation_as_the_template_writes_it) {
  const ProgramResult chat = run_program({"tokenize", "--model", kModel, "--chat", "a<|im_end|>"});
  ASSERT_EQ(chat.exit_code, 0) << chat.err;
  const std::string text = "<|im_start|>user\na<|im_end|><|im_end|>\n<|im_start|>assistant\n";
  EXPECT_TRUE(chat.out.starts_with(text + "\n\n")) << chat.out;
  // The caller's own end of a message is text; the template's is a token.
  const std::string special = "\"<|im_end|>\"  special\n";
  EXPECT_NE(chat.out.find(special), std::string::npos) << chat.out;
  EXPECT_EQ(chat.out.find(special), chat.out.rfind(special)) << chat.out;

  const ModelCopy folder(kModel);
  folder.write("talk.json", R"([{"role": "user", "content": "a<|im_end|>"}])");
  const ProgramResult messages =
      run_program({"tokenize", "--model", kModel, "--messages", folder.path() / "talk.json"});
  EXPECT_EQ(messages.out, chat.out);
  expect_refusal(run_program({"tokenize", "--model", kModel, "--chat", "a", "--decode"}), 2, {"--decode"});
  expect_refusal(run_program({"tokenize", "--model", kModel, "--text", "a", "--chat-options", "{}"}), 2,
                 {"--chat-options"});
  folder.write("talk.json", R"([{"role": "user", "content": "a", "content": "b"}])");
  expect_refusal(run_program({"tokenize", "--model", kModel, "--messages", folder.path() / "talk.json"}), 2,
                 {"talk.json: key \"content\" stands twice"});
}

TEST(Eval, goes_on_where_it_was_stopped_and_compares_with_an_earlier_run) {
  const ModelCopy folder(kModel);
  const std::string out = folder.path() / "out.jsonl";
  const std::vector<std::string> arguments{
      "eval", "--model", kModel, "--data", kModel + "/test.jsonl", "--limit", "4", "--max-tokens", "96", "--out", out};
  const ProgramResult first = run_program(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.out.find("accuracy 4 of 4 (100.00%)"), std::string::npos) << first.out;
  EXPECT_FALSE(std::filesystem::exists(out + ".partial"));
  const std::string results = folder.read("out.jsonl");
  EXPECT_EQ(std::ranges::count(results, '\n'), 4);

  std::vector<std::string> compared = arguments;
  compared.insert(compared.end(), {"--ranks", "3", "--against", out});
  compared[10] = folder.path() / "other.jsonl";
  const ProgramResult second = run_program(compared);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.out.find("outputs  4 of 4 equal"), std::string::npos) << second.out;
  EXPECT_NE(second.out.find("\nranks \"1\" there, \"3\" here\n"), std::string::npos) << second.out;
  const auto run = nlohmann::json::parse(folder.read("out.jsonl.run.json"));
  EXPECT_EQ(run["run"]["math"], "split");
  EXPECT_EQ(run["correct"], 4);

  folder.write("out.jsonl.partial", "another run\n" + results);
  const ProgramResult refused = run_program(arguments);
  expect_refusal(refused, 2, {"out.jsonl.partial", "another run", "delete it"});

  // A smaller limit, by other spellings of the same paths, takes the answers and keeps those after it.
  const std::string mark = "this one is: ";
  const size_t begin = refused.err.find(mark) + mark.size();
  const std::string partial = refused.err.substr(begin, refused.err.find("): delete", begin) - begin) + "\n" + results;
  folder.write("out.jsonl.partial", partial);
  std::vector<std::string> fewer = arguments;
  fewer[2] = kModel + "/.";
  fewer[4] = kModel + "/../mini-qwen35/test.jsonl";
  fewer[6] = "2";
  const ProgramResult third = run_program(fewer);
  ASSERT_EQ(third.exit_code, 0) << third.err;
  EXPECT_NE(third.err.find("4 answers taken from " + out + ".partial"), std::string::npos) << third.err;
  EXPECT_NE(third.err.find("it holds 2 answers to questions after --limit"), std::string::npos) << third.err;
  EXPECT_NE(third.out.find("accuracy 2 of 2 (100.00%)"), std::string::npos) << third.out;
  EXPECT_EQ(folder.read("out.jsonl.partial"), partial);
}

TEST(Gate, sets_the_geometry_itself) {
  expect_refusal(run_program({"gate", "a", "--model", kModel, "--data", kModel + "/test.jsonl", "--ranks", "3"}), 2,
                 {"--ranks", "--for"});
  expect_refusal(run_program({"gate", "c", "--model", kModel, "--data", kModel + "/test.jsonl"}), 2, {"gate"});
}

TEST(Generate, says_the_same_on_every_rank_count_and_link) {
  std::string expected;
  for (const char* ranks : {"1", "2", "3", "5", "7", "8", "16"}) {
    for (const char* link : {"shm", "tcp", "ucx"}) {
      const ProgramResult result =
          generate_with({"--ranks", ranks, "--link", link, "--chat", kQuestion, "--temperature", "0", "--exact"});
      EXPECT_EQ(result.exit_code, 0) << result.err;
      if (expected.empty()) expected = result.out;
      EXPECT_EQ(result.out, expected) << ranks << " over " << link;
    }
  }
}

TEST(Generate, draws_the_same_for_one_seed_on_every_rank_count) {
  std::string expected;
  for (const char* ranks : {"1", "3", "4"}) {
    const ProgramResult result = generate_with({"--ranks", ranks, "--prompt", "Sam has", "--temperature", "1.5",
                                                "--seed", "7", "--max-tokens", "40", "--exact"});
    if (expected.empty()) expected = result.out;
    EXPECT_EQ(result.out, expected) << ranks;
  }
  EXPECT_NE(
      generate_with({"--prompt", "Sam has", "--temperature", "1.5", "--seed", "8", "--max-tokens", "40", "--exact"})
          .out,
      expected);
}

TEST(Generate, writes_statistics_beside_the_text_and_json_instead_of_it) {
  const ProgramResult table = generate_with({"--ranks", "3", "--chat", kQuestion, "--temperature", "0", "--stats"});
  for (const char* words :
       {"query 24 of 36", "KV 4 of 6", "linear key 16 of 18", "linear value 48 of 54", "tokens/s", "gates"}) {
    EXPECT_NE(table.err.find(words), std::string::npos) << table.err;
  }
  const ProgramResult object = generate_with({"--ranks", "3", "--chat", kQuestion, "--temperature", "0", "--json"});
  const auto json = nlohmann::json::parse(object.out);
  EXPECT_EQ(json["text"].get<std::string>() + "\n", table.out);
  EXPECT_EQ(json["padded"]["q_heads"], 36);
  EXPECT_EQ(json["finish_reason"], "stop");
  EXPECT_EQ(json["ranks"].size(), 3u);
  EXPECT_EQ(json["unused_tensors"].size(), 15u);  // the MTP layer is there and is named
}

void keep_to_one_core() {
  cpu_set_t mask, one;
  CPU_ZERO(&one);
  ::sched_getaffinity(0, sizeof mask, &mask);
  for (size_t core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &mask)) CPU_SET(core, &one);
  }
  ::sched_setaffinity(0, sizeof one, &one);
}

TEST(Generate, says_which_cores_its_threads_have_or_why_none) {
  const std::vector<std::string> flags{"--prompt",  "Sam", "--max-tokens", "1", "--temperature", "0", "--stats",
                                       "--threads", "1",   "--ranks",      "1"};
  const ProgramResult confined = generate_with(flags, kModel, keep_to_one_core);
  EXPECT_EQ(confined.exit_code, 0) << confined.err;
  EXPECT_NE(confined.err.find("not pinned (1 thread and one more, 1 core in the affinity mask)"), std::string::npos)
      << confined.err;
  const HostCores host = read_host_cores();
  if (host.usable() < 2) return;  // the same once more
  EXPECT_NE(generate_with(flags).err.find(core_plan_text(plan_cores(host, 1, 0, 1))), std::string::npos);
}

TEST(Generate, stops_at_a_stop_string_at_max_tokens_and_at_the_contexts_end) {
  const ProgramResult stop = generate_with({"--chat", kQuestion, "--temperature", "0", "--stop", " = 2", "--json"});
  const auto stopped = nlohmann::json::parse(stop.out);
  EXPECT_EQ(stopped["text"], "32 - 9");
  EXPECT_EQ(stopped["finish_reason"], "stop");
  const auto cut = nlohmann::json::parse(
      generate_with({"--chat", kQuestion, "--temperature", "0", "--max-tokens", "3", "--json"}).out);
  EXPECT_EQ(cut["completion_tokens"], 3);
  EXPECT_EQ(cut["finish_reason"], "length");

  const ModelCopy model(kModel);  // a context of 64, of which the prompt takes 57
  model.edit("config.json", "\"max_position_embeddings\": 4096", "\"max_position_embeddings\": 64");
  const ProgramResult end = generate_with({"--chat", kQuestion, "--temperature", "0", "--json"}, model.path());
  const auto ended = nlohmann::json::parse(end.out);
  EXPECT_EQ(ended["prompt_tokens"].get<int>() + ended["completion_tokens"].get<int>(), 64);
  EXPECT_EQ(ended["finish_reason"], "length");
}

TEST(Generate, starts_within_a_second_on_three_ranks) {
  const auto json = nlohmann::json::parse(generate_with({"--ranks", "3", "--chat", kQuestion, "--json"}).out);
  RecordProperty("start_to_first_token_ms",
                 fmt::format("{}", json["start_ms"].get<double>() + json["first_token_ms"].get<double>()));
  EXPECT_GT(json["first_token_ms"], 0);
}

TEST(Generate, prompts_from_files_and_standard_input_are_one) {
  const ModelCopy model(kModel);
  model.write("prompt.txt", "Sam has 5 pencils.");
  const auto flags = [&](const std::string& file) {
    return std::vector<std::string>{"--prompt-file", file, "--temperature", "0", "--max-tokens", "8"};
  };
  const ProgramResult file = generate_with(flags((model.path() / "prompt.txt").string()));
  EXPECT_EQ(file.exit_code, 0) << file.err;
  EXPECT_EQ(file.out, generate_with({"--prompt", "Sam has 5 pencils.", "--temperature", "0", "--max-tokens", "8"}).out);
}

TEST(Refusals, of_rank_counts_outside_1_to_16) {
  for (const char* ranks : {"0", "-1", "17", "three", ""}) {
    expect_refusal(generate_with({"--ranks", ranks, "--prompt", "a"}), 2, {"ranks"});
  }
}

TEST(Refusals, of_unknown_flags_values_and_commands) {
  expect_refusal(generate_with({"--prompt", "a", "--linc", "tcp"}), 2, {"--linc"});
  expect_refusal(generate_with({"--prompt", "a", "--link", "infiniband"}), 2, {"--link"});
  expect_refusal(generate_with({"--prompt", "a", "--kv", "int4"}), 2, {"--kv"});
  expect_refusal(generate_with({"--prompt", "a", "--chat", "b"}), 2, {"prompt"});
  expect_refusal(generate_with({}), 2, {"prompt"});
  expect_refusal(run_program({"serve"}), 2, {});
  expect_refusal(run_program({}), 2, {});
}

TEST(Refusals, of_numbers_that_are_none_or_out_of_range) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"--temperature", "nan"}, {"--temperature", "inf"}, {"--temperature", "-1"},
      {"--top-p", "nan"},       {"--top-p", "2"},         {"--min-p", "-0.1"},
      {"--top-k", "-1"},        {"--seed", "-1"},         {"--seed", "1e3"},
      {"--max-tokens", "1e3"},  {"--max-tokens", "-5"},   {"--max-tokens", "99999999999999999999"},
      {"--threads", "-1"},      {"--prefill-chunk", "0"}, {"--pad-for", "17"},
      {"--port", "65535"},      {"--mlp-width", "10"},    {"--gate-timeout-ms", "0"}};
  for (const auto& [flag, value] : cases) {
    const std::string name = flag == "--mlp-width" ? "MLP width" : flag;
    expect_refusal(generate_with({"--prompt", "a", flag, value}), 2, {name});
  }
}

TEST(Settings, come_from_variables_and_from_a_file_whose_unknown_keys_fail) {
  const ModelCopy model(golden_directory("llama-9q3kv-tied"));
  model.write("good.toml", "generate.ranks = 5\n");
  model.write("bad.toml", "generate.rank = 5\n");
  model.write("section.toml", "[generate]\nranks = 5\n");
  const std::string good = (model.path() / "good.toml").string(), bad = (model.path() / "bad.toml").string(),
                    section = (model.path() / "section.toml").string();
  const std::vector<std::string> flags{"--prompt", "a", "--temperature", "0", "--max-tokens", "1", "--json"};
  const auto ranks_of = [](const ProgramResult& result) { return nlohmann::json::parse(result.out)["ranks"].size(); };

  std::vector<std::string> with_file = flags;
  with_file.insert(with_file.end(), {"--settings", good});
  EXPECT_EQ(ranks_of(generate_with(with_file)), 5u);
  with_file.back() = section;
  EXPECT_EQ(ranks_of(generate_with(with_file)), 5u);
  with_file.back() = bad;
  expect_refusal(generate_with(with_file), 2, {"bad.toml, line 1: generate.rank is no setting"});
  model.write("value.toml", "[generate]\n# how many\nranks = 17\n");
  with_file.back() = (model.path() / "value.toml").string();
  expect_refusal(generate_with(with_file), 2, {"value.toml, line 3: --ranks", "from 1 to 16", "17"});
  with_file.back() = "/dev/zero";
  expect_refusal(generate_with(with_file), 2, {"--settings", "larger than 1 MiB"});
  // Behind any command, also one that has a --config of its own.
  model.write("synth.toml", "synth.layers = 1\nsynth.headers-only = true\n");
  const ProgramResult synth = run_program(
      {"synth", "--config", model.path(), "--out", model.path() / "made", "--settings", model.path() / "synth.toml"});
  EXPECT_NE(synth.out.find("headers only"), std::string::npos) << synth.out << synth.err;
  EXPECT_EQ(ranks_of(generate_with(flags, kModel, [] { ::setenv("COPRIME_RANKS", "4", 1); })), 4u);
  expect_refusal(generate_with(flags, kModel, [] { ::setenv("COPRIME_RANKS", "many", 1); }), 2,
                 {"COPRIME_RANKS: --ranks", "found \"many\""});
}

TEST(Refusals, of_words_that_nobody_knows_come_before_what_is_missing) {
  expect_refusal(run_program({"generate", "--model", kModel, "--chta", "hi"}), 2, {"--chta is no flag"});
  expect_refusal(run_program({"generat"}), 2, {"generat is no flag or command"});
  expect_refusal(run_program({"generate", "--model", kModel, "--chat", "hi", "--stop", ""}), 2, {"--stop"});
  expect_refusal(run_program({"generate", "--model", kModel, "--prompt-file", "/dev/zero"}), 2,
                 {"/dev/zero", "64 MiB"});
}

TEST(Refusals, of_prompts_that_are_empty_too_long_or_no_text) {
  expect_refusal(generate_with({"--prompt", ""}), 2, {"empty"});
  expect_refusal(generate_with({"--chat", ""}), 2, {"empty"});
  expect_refusal(generate_with({"--prompt", "a", "--chat-options", "{}"}), 2, {"--chat-options", "--chat"});
  expect_refusal(generate_with({"--chat", "a", "--chat-options", "{"}), 2, {"variables", "JSON"});
  expect_refusal(generate_with({"--messages", "/nowhere.json"}), 3, {"/nowhere.json"});
  expect_refusal(generate_with({"--prompt-file", "/dev/null"}), 2, {"empty"});
  expect_refusal(generate_with({"--prompt-file", "/no/such/file"}), 3, {"/no/such/file"});
  expect_refusal(generate_with({"--prompt", "caf\xe9"}), 2, {"UTF-8", "3"});
  std::string text;
  for (int i = 0; i < 5000; ++i) text += " 7";
  expect_refusal(generate_with({"--prompt", text}), 2, {"4096"});
}

TEST(Refusals, of_models_that_are_not_there_or_not_whole) {
  expect_refusal(generate_with({"--prompt", "a"}, "/no/such/model"), 3, {"/no/such/model"});
  const ModelCopy model(kModel);
  const std::string config = model.read("config.json");
  model.write("config.json", config.substr(0, config.size() / 2));
  expect_refusal(generate_with({"--prompt", "a"}, model.path()), 3, {"config.json"});
  model.write("config.json", "");
  expect_refusal(generate_with({"--prompt", "a"}, model.path()), 3, {"config.json"});
  model.write("config.json", config);
  std::filesystem::resize_file(model.path() / "model.safetensors", 20'000'000);
  expect_refusal(generate_with({"--prompt", "a"}, model.path()), 3, {"model.safetensors"});
  std::filesystem::remove(model.path() / "model.safetensors");
  expect_refusal(generate_with({"--prompt", "a"}, model.path()), 3, {"model.safetensors"});
}

TEST(Refusals, of_missing_and_misshapen_tensors) {
  const ModelCopy model(kModel);
  const std::string file = model.read("model.safetensors");
  model.edit("model.safetensors", "layers.3.self_attn.o_proj", "layers.3.self_attn.x_proj");
  expect_refusal(generate_with({"--prompt", "a"}, model.path()), 3, {"x_proj"});
  model.write("model.safetensors", file);
  model.edit("model.safetensors", "\"model.language_model.layers.3.self_attn.o_proj",
             "\"mtp.x.language_model.layers.3.self_attn.o_proj");
  expect_refusal(generate_with({"--prompt", "a"}, model.path()), 3, {"o_proj"});
  model.write("model.safetensors", file);
  model.edit("model.safetensors", "\"shape\":[256,544]", "\"shape\":[544,256]");
  expect_refusal(generate_with({"--prompt", "a"}, model.path()), 3, {"down_proj", "544", "256"});
}

// The limit leaves room for the progress page and for no shared window.
void limit_shared_memory() {
  const rlimit none{4096, 4096};
  ::setrlimit(RLIMIT_FSIZE, &none);
}

TEST(Refusals, of_a_window_that_does_not_fit_memory) {
  expect_refusal(generate_with({"--prompt", "a", "--ranks", "3", "--link", "shm"}, kModel, limit_shared_memory), 4,
                 {"--link shm", "ranks 0 and 1", "shared window"});
}

TEST(Generate, without_a_shared_window_goes_over_tcp_and_warns) {
  const std::vector<std::string> flags{"--prompt",      "Sam has", "--ranks",      "3",
                                       "--temperature", "0",       "--max-tokens", "8"};
  const ProgramResult limited = generate_with(flags, kModel, limit_shared_memory);
  EXPECT_EQ(limited.exit_code, 0) << limited.err;
  EXPECT_EQ(limited.out, generate_with(flags).out);
  EXPECT_NE(limited.err.find("ranks 0, 1, 2 share no memory"), std::string::npos) << limited.err;
}

void with_a_device_that_makes_no_pair() { ::setenv("LD_LIBRARY_PATH", COPRIME_FAKE_VERBS, 1); }

TEST(Refusals, of_rdma_that_was_asked_for_by_name) {
  expect_refusal(
      generate_with({"--prompt", "a", "--ranks", "2", "--link", "verbs"}, kModel, with_a_device_that_makes_no_pair), 4,
      {"--link verbs: ranks 0 and 1 use tcp, not verbs", "broken0 makes no queue pair", "--link auto"});
  expect_refusal(generate_with({"--prompt", "a", "--ranks", "2", "--verbs-device", "mlx5_9"}, kModel,
                               with_a_device_that_makes_no_pair),
                 4, {"--verbs-device mlx5_9: there is no RDMA device mlx5_9: this host has broken0"});
  expect_refusal(generate_with({"--prompt", "a", "--ranks", "2", "--link", "verbs", "--verbs-gid", "1"}, kModel,
                               with_a_device_that_makes_no_pair),
                 4, {"GID index 1 is beyond the table of 1 entries"});
  expect_refusal(run_program({"link", "--ranks", "2", "--verbs-device", "mlx5_9"}, with_a_device_that_makes_no_pair), 4,
                 {"--verbs-device mlx5_9: there is no RDMA device mlx5_9: this host has broken0"});
  // Figures of another link than the one that was asked for are none.
  const ProgramResult link = run_program({"link", "--ranks", "2", "--link", "verbs", "--sizes", "4K", "--json"},
                                         with_a_device_that_makes_no_pair);
  EXPECT_EQ(link.exit_code, 4);
  EXPECT_NE(link.err.find("--link verbs: ranks 0 and 1 use tcp, not verbs: broken0 makes no queue pair"),
            std::string::npos)
      << link.err;
  EXPECT_EQ(nlohmann::json::parse(link.out)["pairs"].size(), 0u) << link.out;
}

const std::string kAttempts = fmt::format("{}/coprime-attempts-{}", testing::TempDir(), ::getpid());

void without_memory_and_with_a_device_that_makes_no_pair() {
  limit_shared_memory();
  with_a_device_that_makes_no_pair();
  ::setenv("FAKE_VERBS_ATTEMPTS", kAttempts.c_str(), 1);
}

TEST(Link, tries_a_device_that_makes_no_pair_in_the_first_trial_alone_and_measures_over_tcp) {
  std::vector<uintmax_t> attempts;
  for (const std::string sizes : {"4K", "4K,8K,16K"}) {  // two trials, and six
    const ProgramResult link = run_program({"link", "--ranks", "2", "--sizes", sizes, "--repeat", "5"},
                                           without_memory_and_with_a_device_that_makes_no_pair);
    EXPECT_EQ(link.exit_code, 0) << link.err;
    EXPECT_NE(link.err.find("ranks 0 and 1 use tcp, not verbs: broken0 makes no queue pair"), std::string::npos)
        << link.err;
    attempts.push_back(std::filesystem::file_size(kAttempts));
    std::filesystem::remove(kAttempts);
  }
  EXPECT_GT(attempts[0], 0u);
  EXPECT_EQ(attempts[1], attempts[0]);
}

TEST(Link, measures_pairs_and_gates_and_what_a_token_costs) {
  for (const std::string link : {"auto", "tcp", "ucx"}) {
    const std::vector<std::string> flags{"link",    "--ranks",  "3",        "--link", link,
                                         "--sizes", "4K,65536", "--repeat", "20",     "--gate-timeout-ms",
                                         "20000",   "--model",  kModel};
    const ProgramResult table = run_program(flags);
    EXPECT_EQ(table.exit_code, 0) << table.err;
    for (const char* words : {"one way of 4 KiB", "there and back", "gate of 3 ranks", "0 wrong", "tokens/s"})
      EXPECT_NE(table.out.find(words), std::string::npos) << table.out;

    std::vector<std::string> with_json = flags;
    with_json.push_back("--json");
    const ProgramResult object = run_program(with_json);
    EXPECT_EQ(object.exit_code, 0) << object.err;
    const auto json = nlohmann::json::parse(object.out);
    EXPECT_EQ(json["pairs"].size(), 3u * 2 * 3);  // with the model's 1 KiB
    EXPECT_EQ(json["gate"].size(), 3u);
    EXPECT_EQ(json["pairs"][0]["link"], link == "auto" ? "shm" : link);
    EXPECT_EQ(json["hosts"][0]["ranks"], (std::vector<int>{0, 1, 2}));
    EXPECT_GT(json["gate"][0]["floor_p50_us"], 0);
    EXPECT_EQ(json["wrong"], 0);
    EXPECT_GT(json["transfers"], 0);
    EXPECT_EQ(json["token"]["gates"], 17);
  }
}

TEST(Sim, refuses_kernels_chips_and_outputs_that_make_no_sense) {
  expect_refusal(run_program({"sim", "run", "nonsense"}), 2, {"nonsense"});
  expect_refusal(run_program({"sim", "run", "decode", "--chip", "/nowhere.yaml"}), 3, {"/nowhere.yaml"});
  expect_refusal(run_program({"sim", "run", "decode", "--cubes", "5"}), 2, {"5"});
  const std::string same = ::testing::TempDir() + "same";
  expect_refusal(run_program({"sim", "run", "decode", "--trace", same, "--oplog", same}), 2, {"--trace", "--oplog"});
}

TEST(Sim, refuses_flags_that_the_kernel_has_no_use_for) {
  expect_refusal(run_program({"sim", "run", "decode-short", "--cubes", "5"}), 2,
                 {"decode-short has no use for --cubes", "--kv-per-cube"});
  expect_refusal(run_program({"sim", "run", "prefill", "--variant", "opt1"}), 2, {"prefill has no use for --variant"});
  expect_refusal(run_program({"sim", "knockout", "allreduce", "--context", "1K"}), 2, {"allreduce", "--context"});
  expect_refusal(run_program({"sim", "sweep", "prefill", "--over", "variant"}), 2, {"prefill has no use for variant"});
  expect_refusal(run_program({"sim", "run", "prefill", "--auto"}), 2, {"--auto chooses a decode"});
  expect_refusal(run_program({"sim", "run", "decode", "--threshold", "1K"}), 2, {"--threshold is of --auto"});
  expect_refusal(run_program({"sim", "run", "decode", "--context", "2K", "--max-context", "1K"}), 2,
                 {"--max-context 1K"});
  EXPECT_EQ(run_program({"sim", "run", "decode", "--context", "1K", "--cubes", "2", "--kv-heads", "1"}).exit_code, 0);
}

TEST(Sim, a_sweep_of_which_no_run_could_be_done_fails_and_says_which) {
  expect_refusal(run_program({"sim", "sweep", "--over", "cubes=5,7", "--context", "1K"}), 2,
                 {"none of the 2 runs", "cubes 5: a group of 5 CUBEs", "cubes 7: a group of 7 CUBEs"});
}

TEST(Sim, head_packing_says_what_it_is_for_and_which_command_runs) {
  const ProgramResult result = run_program({"sim", "run", "head-packing", "--context", "1K"});
  expect_refusal(result, 2, {"That is what this baseline shows"});
  const std::string words = "It runs with coprime ";
  const size_t at = result.err.find(words);
  ASSERT_NE(at, std::string::npos) << result.err;
  std::istringstream command(result.err.substr(at + words.size()));
  std::vector<std::string> arguments;
  for (std::string word; command >> word;) arguments.push_back(word);
  EXPECT_EQ(run_program(arguments).exit_code, 0);
}

TEST(Sim, writes_over_its_own_files_alone) {
  const std::filesystem::path folder = ::testing::TempDir() + "sim-outputs-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const std::string log = folder / "a.oplog", trace = folder / "a.pftrace", base = folder / "a.sqlite",
                    svg = folder / "a.svg", letter = folder / "letter";
  std::ofstream(letter) << "Dear Ada";
  const std::vector<std::string> small = {"--context", "1K", "--kv-heads", "1", "--cubes", "1"};
  const auto with = [&](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  for (int i = 0; i < 2; ++i) {  // the second time over what the first one wrote
    EXPECT_EQ(run_program(with(with({"sim", "run", "decode"}, small), {"--oplog", log, "--trace", trace})).exit_code,
              0);
    EXPECT_EQ(run_program({"sim", "export", log, "--sqlite", base}).exit_code, 0);
    EXPECT_EQ(run_program(with(with({"sim", "sweep"}, small), {"--over", "tile=32,64", "--svg", svg})).exit_code, 0);
  }
  expect_refusal(run_program(with({"sim", "run", "decode"}, {"--oplog", letter})), 2, {"--oplog", letter, "no op_log"});
  expect_refusal(run_program(with({"sim", "run", "decode"}, {"--trace", log})), 2, {"--trace", log, "no trace"});
  expect_refusal(run_program({"sim", "export", log, "--sqlite", letter}), 2, {"--sqlite", letter, "no database"});
  expect_refusal(run_program({"sim", "sweep", "--over", "tile=32,64", "--svg", letter}), 2,
                 {"--svg", letter, "no chart"});
  std::ifstream still(letter);
  std::string line;
  std::getline(still, line);
  EXPECT_EQ(line, "Dear Ada");
  std::filesystem::remove_all(folder);
}

TEST(Sim, the_dispatcher_says_what_it_chose_and_why) {
  const ProgramResult table = run_program({"sim", "run", "decode", "--auto", "--context", "256K", "--cubes", "4"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("chosen          long: the keys of a KV head over 4 CUBEs of 8 PEs"), std::string::npos)
      << table.out;
  const ProgramResult object =
      run_program({"sim", "run", "decode", "--auto", "--context", "128K", "--max-context", "1M", "--json"});
  EXPECT_EQ(object.exit_code, 0) << object.err;
  const auto json = nlohmann::json::parse(object.out);
  EXPECT_EQ(json["dispatch"]["layout"], "long");
  EXPECT_EQ(json["dispatch"]["reshard"]["from"], "short");
  EXPECT_GT(json["dispatch"]["reshard"]["ticks_at_least"], json["ticks"]);
  EXPECT_EQ(json["run"]["kernel"], "decode");
}

TEST(Sim, layers_are_two_that_were_simulated_and_the_rest_by_reuse) {
  const std::vector<std::string> run = {"sim", "run", "decode", "--context", "4K", "--layers", "80"};
  const ProgramResult table = run_program(run);
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_NE(table.out.find("for 80: two were simulated one after the other, and are equal"), std::string::npos)
      << table.out;
  std::vector<std::string> with_json = run;
  with_json.push_back("--json");
  const auto json = nlohmann::json::parse(run_program(with_json).out);
  EXPECT_EQ(json["ticks_of_layers"], 80 * json["ticks"].get<int64_t>());
  EXPECT_EQ(json["layers_simulated"], 2);
}

TEST(Sim, odd_numbers_of_pes_run_with_a_warning) {
  const ProgramResult five = run_program({"sim", "run", "decode", "--context", "4K", "--pes", "5"});
  EXPECT_EQ(five.exit_code, 0) << five.err;
  EXPECT_NE(five.err.find("warning: 5 PEs stand in a line"), std::string::npos) << five.err;
  EXPECT_EQ(run_program({"sim", "run", "decode", "--context", "4K", "--pes", "4"}).err, "");
}

// SIGTERM as soon as the export's own file is there.
TEST(Sim, an_export_that_is_stopped_leaves_nothing) {
  static const std::filesystem::path folder = ::testing::TempDir() + "sim-export-" + std::to_string(::getpid());
  std::filesystem::create_directories(folder);
  const std::string log = folder / "a.oplog", base = folder / "a.sqlite";
  ASSERT_EQ(run_program({"sim", "run", "decode", "--context", "64K", "--oplog", log}).exit_code, 0);
  const auto files = [] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  const auto stop = [] {
    const pid_t program = ::getpid();
    if (::fork() != 0) return;
    for (int i = 0; i < 10'000 && std::distance(std::filesystem::directory_iterator(folder), {}) < 2; ++i)
      ::usleep(1000);
    ::kill(program, SIGTERM);
    ::_exit(0);
  };
  const ProgramResult result = run_program({"sim", "export", log, "--sqlite", base}, stop);
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
  EXPECT_EQ(files(), 1);
  std::filesystem::remove_all(folder);
}

TEST(Sim, says_which_figures_are_those_of_one_launch) {
  const ProgramResult result = run_program({"sim", "run", "decode", "--context", "16K", "--cubes", "16"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("2 launches one after another\none launch "), std::string::npos) << result.out;
}

TEST(Link, refuses_sizes_models_and_rank_counts_that_it_cannot_measure) {
  expect_refusal(run_program({"link", "--sizes", "4K,1x"}), 2, {"--sizes", "1x"});
  expect_refusal(run_program({"link", "--sizes", "6"}), 2, {"--sizes", "no multiple of 4"});
  expect_refusal(run_program({"link", "--ranks", "1"}), 2, {"--ranks"});
  expect_refusal(run_program({"link", "--remote", "1"}), 2, {"--listen"});
  expect_refusal(run_program({"link", "--ranks", "2", "--remote", "3", "--listen", "127.0.0.1:1"}), 2,
                 {"raise --ranks"});
  expect_refusal(run_program({"link", "--remote", "1", "--listen", "192.0.2.1:1"}), 2, {"--key-file"});
  expect_refusal(run_program({"link", "--model", "/no/such/model"}), 3, {"/no/such/model"});
  expect_refusal(
      run_program({"link", "--sizes", "4K", "--repeat", "3"}, [] { ::dup2(::open("/dev/full", O_WRONLY), 1); }), 1,
      {"standard output"});
}

TEST(Bench, measures_prefill_and_decode_beside_a_plain_read) {
  const ProgramResult result =
      run_program({"bench", "--model", kModel, "--ranks", "2", "--threads", "1", "--prompt-tokens", "20",
                   "--decode-tokens", "5", "--batch", "3", "--repeat", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto figures = nlohmann::json::parse(result.out);
  for (const char* name : {"prefill_tok_s", "decode_tok_s", "first_token_ms", "weights_gb_s", "read_gb_s", "start_ms"})
    EXPECT_GT(figures.at(name).get<double>(), 0) << name;
  EXPECT_GT(figures.at("gate_share").get<double>(), 0);
  EXPECT_LT(figures.at("gate_share").get<double>(), 1);
  EXPECT_EQ(figures.at("read_threads"), 2);
  EXPECT_EQ(figures.at("batch"), 3);
  int64_t weights = 0;
  for (const auto& rank : figures.at("ranks")) weights += rank.at("weight_bytes").get<int64_t>();
  EXPECT_LE(figures.at("step_weight_bytes").get<int64_t>(), weights);
  EXPECT_GT(figures.at("step_weight_bytes").get<int64_t>(), weights / 2);
}

TEST(Bench, refuses_more_tokens_than_the_context_holds) {
  expect_refusal(run_program({"bench", "--model", kModel, "--prompt-tokens", "100000"}), 2,
                 {"100000", "measure fewer"});
}

TEST(Logits, writes_what_transformers_says) {
  for (const std::string name : {"llama-9q3kv-tied", "mini-qwen35"}) {
    const Golden golden = read_golden(name);
    const ModelCopy scratch(golden_directory("llama-9q3kv-tied"));
    const auto out = scratch.path() / "out.safetensors";
    const std::string ids =
        (golden.directory / "golden.safetensors").string() + (name == "mini-qwen35" ? ":ids.0" : ":input_ids");
    const ProgramResult result =
        run_program({"logits", "--model", golden.directory, "--ids", ids, "--ranks", "3", "--out", out});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const SafetensorsFile file = SafetensorsFile::open(out);
    const TensorInfo* tensor = file.find("logits");
    ASSERT_NE(tensor, nullptr);
    const GoldenCase& c = golden.cases[0];
    EXPECT_EQ(tensor->shape,
              name == "mini-qwen35" ? (std::vector<int64_t>{c.length, 1000}) : (std::vector<int64_t>{2, 77, 331}));
    std::vector<float> logits(tensor->bytes / 4);
    file.read(tensor->offset, std::as_writable_bytes(std::span(logits)));
    EXPECT_LE(largest_difference(logits, c.logits), 1e-4f);
  }
}

TEST(Logits, puts_no_file_in_the_place_of_a_link_or_a_device) {
  const ModelCopy model(golden_directory("llama-9q3kv-tied"));
  const auto target = model.path() / "target", link = model.path() / "link";
  std::ofstream(target) << "kept";
  std::filesystem::create_symlink(target, link);
  const std::string ids = (model.path() / "golden.safetensors").string() + ":input_ids";
  expect_refusal(run_program({"logits", "--model", model.path(), "--ids", ids, "--out", link}), 3,
                 {"link", "no regular file"});
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(model.read("target"), "kept");
}

TEST(Generate, says_when_standard_output_takes_nothing) {
  for (const bool json : {false, true}) {
    std::vector<std::string> flags{"--prompt", "a",      "--temperature", "0",       "--max-tokens",
                                   "3",        "--link", "tcp",           "--ranks", "2"};
    if (json) flags.push_back("--json");
    expect_refusal(generate_with(flags, kModel, [] { ::dup2(::open("/dev/full", O_WRONLY), 1); }), 1,
                   {"standard output"});
    expect_refusal(generate_with(flags, kModel, [] { ::close(0), ::close(1); }), 1, {"standard output"});
  }
}

TEST(Logits, writes_over_nothing_that_it_reads) {
  const ModelCopy folder(golden_directory("mini-qwen35"));
  const Golden golden = read_golden("mini-qwen35");
  const std::string ids = (folder.path() / "golden.safetensors").string(), model = folder.path().string();
  std::filesystem::copy_file(golden.directory / "golden.safetensors", ids,
                             std::filesystem::copy_options::overwrite_existing);
  for (const std::string& out : {ids, model + "/model.safetensors", model + "/config.json"}) {
    const auto bytes = std::filesystem::file_size(out);
    expect_refusal(run_program({"logits", "--model", model, "--ids", ids + ":input_ids", "--out", out}), 2,
                   {"--out " + out, "this run reads it"});
    EXPECT_EQ(std::filesystem::file_size(out), bytes);
  }
}

TEST(Logits, refuses_what_are_no_ids) {
  const Golden golden = read_golden("llama-9q3kv-tied");
  const std::string file = (golden.directory / "golden.safetensors").string(), model = golden.directory.string();
  const auto logits = [&](const std::string& ids, const std::string& of = "") {
    return run_program(
        {"logits", "--model", of.empty() ? model : of, "--ids", ids, "--out", "/tmp/never-written.safetensors"});
  };
  expect_refusal(logits(file), 2, {"NAME"});
  expect_refusal(logits(file + ":nothing"), 3, {"nothing"});
  expect_refusal(logits(file + ":logits"), 3, {"F32"});
  expect_refusal(logits("/no/such.safetensors:ids"), 3, {"/no/such.safetensors"});
  expect_refusal(run_program({"logits", "--model", model, "--ids", file + ":input_ids", "--out",
                              "/no/such/folder/out.safetensors"}),
                 3, {"/no/such/folder"});
}

TEST(CommandLine, a_wrong_flag_is_explained_in_plain_words) {
  const auto told = [](const std::vector<std::string>& arguments, const std::string& message) {
    const ProgramResult result = run_program(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.err, "coprime: " + message + "\n");
  };
  const std::string read_more = " (coprime generate --help lists what there is)";
  told({"generate", "--model"}, "--model needs a value behind it" + read_more);
  told({"generate", "--model", "m", "--prompt", "a", "--link", "rope"},
       "--link is \"rope\"; expected one of auto, shm, tcp, verbs, ucx" + read_more);
  told({"generate", "--model", "m"},
       "give one of --prompt, --chat, --messages, --prompt-file, and no other" + read_more);
  told({"generate", "--prompt", "a"}, "--model is required" + read_more);
  const ProgramResult none = run_program({});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_NE(none.err.find("a command is missing: expected one of generate, eval, bench"), std::string::npos)
      << none.err;
}

TEST(Check, says_which_tensors_three_ranks_pad_and_verifies_one_of_each_rule) {
  const ProgramResult result = run_program({"check", "--model", kModel, "--ranks", "3", "--tensors"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("model: 87 of 124 tensors are padded for 3 ranks"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("verified"), std::string::npos) << result.out;
}

// Its head for several tokens has full attention where the slice has none.
TEST(Check, a_slice_without_full_attention_fits) {
  const ModelCopy copy(kModel);
  const std::string out = copy.path() / "slice";
  const ProgramResult made = run_program(
      {"synth", "--config", "qwen3.8-27b", "--layers", "2", "--format", "bf16", "--headers-only", "--out", out});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  const ProgramResult result = run_program({"check", "--model", out, "--ranks", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(Check, the_27b_in_quark_s_layout_and_its_drafter_in_fp8_are_padded_for_three) {
  const TemporaryFolder folder;
  const auto make = [&](const std::string& shape, const std::string& format) {
    const std::string out = (folder / format).string();
    const ProgramResult made =
        run_program({"synth", "--config", shape, "--format", format, "--headers-only", "--out", out});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return out;
  };
  const std::string model = make("qwen3.8-27b", "quark-mxfp4"), drafter = make("qwen3.8-27b-dflash2", "fp8-block");
  const ProgramResult result = run_program({"check", "--model", model, "--drafter", drafter, "--ranks", "3"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("model: 1148 of 1703 tensors are padded for 3 ranks"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("drafter: 70 of 117 tensors are padded for 3 ranks"), std::string::npos) << result.out;
}

TEST(Check, a_model_that_does_not_fit_is_told_in_full_and_by_the_exit_code) {
  const ModelCopy copy(kModel);
  copy.edit("config.json", "\"intermediate_size\": 544", "\"intermediate_size\": 512");
  const ProgramResult result = run_program({"check", "--model", copy.path(), "--ranks", "3", "--json"});
  expect_refusal(result, 3, {"the checkpoint does not fit", "has the shape"});
  const auto report = nlohmann::json::parse(result.out);
  EXPECT_EQ(report.at("model").at("problems").size(), 27u);  // three matrices of nine layers
  EXPECT_FALSE(report.at("holds"));
}

TEST(Quantize, writes_a_model_that_answers) {
  const ModelCopy copy(kModel);
  const std::string out = copy.path() / "fp8";
  const ProgramResult made = run_program({"quantize", "--model", kModel, "--to", "fp8-block", "--out", out});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_NE(made.out.find("50 matrices in fp8-block"), std::string::npos) << made.out;
  const ProgramResult result = generate_with({"--ranks", "3", "--chat", kQuestion, "--temperature", "0"}, out);
  EXPECT_NE(result.out.find("#### 350"), std::string::npos) << result.out;
  expect_refusal(run_program({"quantize", "--model", kModel, "--to", "mxfp4", "--out", out}), 2,
                 {"is there and holds something"});
}

}  // namespace
}  // namespace coprime
