// The embedded model on its 500 word problems, question by question as transformers answered them; results files;
// gates.
#include "tools/eval.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tools/padding_gate.h"
#include "tools/partial_results.h"
#include "tools/run_facts.h"

namespace coprime {
namespace {

const std::string kModel = COPRIME_SOURCE_DIR "/models/mini-qwen35";

EvalOptions options(int ranks) {
  EvalOptions result{.concurrency = 32, .max_tokens = 96};
  result.world.model = kModel;
  result.world.plan.ranks = ranks;
  result.world.launch.as = RanksAs::kThreads;
  result.world.gate_timeout_ms = 20'000;  // the machine may be busy
  return result;
}

std::vector<Question> questions(size_t limit) { return read_questions(kModel + "/test.jsonl", limit); }

// Which questions transformers got right.
std::vector<bool> expected() {
  std::ifstream file(kModel + "/report.json");
  return nlohmann::json::parse(file).at("correct").get<std::vector<bool>>();
}

// The wrong ones, and those that differ from transformers'; their margins go to the log.
void expect_as_transformers(const EvalRun& run) {
  const std::vector<bool> right = expected();
  for (const Answer& answer : run.answers) {
    const float least = answer.margins.empty() ? 0 : *std::ranges::min_element(answer.margins);
    EXPECT_EQ(answer.correct, right[static_cast<size_t>(answer.id)])
        << "question " << answer.id << ", got " << answer.got << ", least margin " << least;
  }
}

TEST(Eval, gets_498_of_500_question_by_question_as_transformers_does) {
  const EvalRun run = run_eval(options(1), questions(0));
  EXPECT_EQ(run.answers.size(), 500u);
  EXPECT_EQ(run.correct, 498);
  expect_as_transformers(run);
}

// A sum that crosses ranks may round differently, so that an answer near a tie may differ: none does so far.
void expect_as_one_rank(std::initializer_list<int> rank_counts, size_t limit) {
  std::map<int64_t, Answer> base;
  for (const Answer& answer : run_eval(options(1), questions(limit)).answers) base.emplace(answer.id, answer);
  for (const int ranks : rank_counts) {
    const EvalRun many = run_eval(options(ranks), questions(limit));
    const EvalComparison comparison = compare_answers(base, many.answers);
    EXPECT_EQ(comparison.paired.b + comparison.paired.c, 0) << ranks << " ranks\n" << comparison.text();
    for (const EvalComparison::Difference& each : comparison.differences) {
      ASSERT_TRUE(each.margin) << comparison.text();
      EXPECT_LT(*each.margin, 1e-2) << "question " << each.id << " at token " << each.token;
    }
  }
}

TEST(Eval, answers_on_three_ranks_as_on_one) { expect_as_one_rank({3}, 48); }
TEST(EvalSoak, answers_on_2_3_5_and_7_ranks_as_on_one) { expect_as_one_rank({2, 3, 5, 7}, 500); }

TEST(Eval, exact_mode_gives_each_question_the_tokens_that_it_has_alone) {
  EvalOptions together = options(2), alone = options(1);
  together.world.plan.exact = alone.world.plan.exact = true;
  together.concurrency = 5;
  together.world.max_rows = 37;
  alone.concurrency = 1;
  const EvalRun a = run_eval(together, questions(9)), b = run_eval(alone, questions(9));
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(a.answers[i].output, b.answers[i].output);
    EXPECT_EQ(a.answers[i].margins, b.answers[i].margins);
  }
}

TEST(Eval, known_answers_are_kept_and_not_asked_again) {
  std::map<int64_t, Answer> known;
  known[1] = {.id = 1, .question = "q", .answer = "#### 1", .got = "7", .output = "mine"};
  EvalOptions counting = options(1);
  int answered = 0;
  counting.answered = [&](const Answer&) { ++answered; };
  const EvalRun run = run_eval(counting, questions(3), known);
  EXPECT_EQ(answered, 2);
  EXPECT_EQ(run.answers[1].output, "mine");
  EXPECT_EQ(run.correct, 2);
}

TEST(FinalAnswer, is_what_stands_behind_the_last_mark) {
  EXPECT_EQ(final_answer("a #### 3\n#### 1,234.\nmore"), "1234");
  EXPECT_EQ(final_answer("####$ 5 "), "5");
  EXPECT_EQ(final_answer("#### -2.5"), "-2.5");
  EXPECT_EQ(final_answer("no mark 5"), "");
}

TEST(FinalAnswer, is_a_number_however_it_is_written) {
  for (const char* text : {"#### $336.00", "#### 336", "#### 336.", "####336.0 ", "#### 336 dollars", "#### +336",
                           "#### 0336", "#### $ 336.00.", "#### 336%"})
    EXPECT_EQ(final_answer(text), "336") << text;
  EXPECT_EQ(final_answer("#### -$1,200.50"), "-1200.5");
  EXPECT_EQ(final_answer("#### .5"), "0.5");
  EXPECT_EQ(final_answer("#### -0.0"), "0");
  EXPECT_EQ(final_answer("#### 100"), "100");
  EXPECT_EQ(final_answer("#### 1,000,000"), "1000000");
}

TEST(FinalAnswer, that_is_more_than_a_number_stays_as_it_is) {
  EXPECT_EQ(final_answer("#### 3/4"), "3/4");
  EXPECT_EQ(final_answer("#### 3 or 4"), "3or4");
  EXPECT_EQ(final_answer("#### 1.2.3"), "1.2.3");
  EXPECT_EQ(final_answer("#### 10:30"), "10:30");
  EXPECT_EQ(final_answer("#### yes"), "yes");
}

class EvalFiles : public testing::Test {
 protected:
  EvalFiles() { std::filesystem::create_directories(folder_); }
  ~EvalFiles() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const std::string& text) const {
    std::ofstream(folder_ / "file.jsonl", std::ios::binary) << text;
    return folder_ / "file.jsonl";
  }
  template <class F>
  std::string refusal(F f) const {
    try {
      f();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      return error.what();
    }
    ADD_FAILURE() << "accepted";
    return {};
  }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("coprime_eval_{}", ::getpid());
};

TEST_F(EvalFiles, that_are_wrong_are_named_with_their_line) {
  const std::string good = R"({"question": "q", "answer": "#### 1"})";
  for (const char* bad : {"{", "3", "{}", R"({"question": "q"})", R"({"question": 3, "answer": "#### 1"})",
                          R"({"question": "q", "answer": "1"})"}) {
    const auto path = write(good + "\n" + bad + "\n");
    EXPECT_NE(refusal([&] { read_questions(path, 0); }).find("file.jsonl, line 2"), std::string::npos) << bad;
    EXPECT_EQ(read_questions(path, 1).size(), 1u);
  }
  EXPECT_NE(refusal([&] { read_questions(write("\n"), 0); }).find("no question"), std::string::npos);
  EXPECT_NE(refusal([&] { read_questions(folder_ / "none", 0); }).find("cannot be read"), std::string::npos);
}

TEST_F(EvalFiles, results_are_read_as_they_were_written) {
  const Answer answer{.id = 4, .question = "q\n\"", .answer = "#### 1", .got = "é", .output = "\x01o", .correct = true};
  const std::string line = answer_line(answer);
  EXPECT_TRUE(line.starts_with(R"({"id":4,"question":)")) << line;
  const auto answers = read_answers(write(line));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answer_line(answers.at(4)), line);
  const auto path = write(line + line.substr(0, 20));
  EXPECT_NE(refusal([&] { read_answers(path); }).find("line 2"), std::string::npos);
  EXPECT_NE(refusal([&] { read_answers(write(line + line)); }).find("each id once"), std::string::npos);
}

TEST_F(EvalFiles, of_lines_without_an_end_are_not_read_for_ever) {
  EXPECT_NE(refusal([] { read_questions("/dev/zero", 0); }).find("/dev/zero, line 1: more than 64 MiB"),
            std::string::npos);
  EXPECT_NE(refusal([] { read_questions("/proc/self/mem", 0); }).find("reading failed"), std::string::npos);
}

TEST_F(EvalFiles, a_question_longer_than_the_context_is_named_by_its_line) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "many words ";
  const auto path = write("\n" + nlohmann::json{{"question", text}, {"answer", "#### 1"}}.dump() + "\n");
  try {
    run_eval(options(1), read_questions(path, 0));
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("the question in line 2 of the data"), std::string::npos) << error.what();
  }
}

TEST_F(EvalFiles, what_decides_the_answers_is_the_key_and_no_path) {
  const auto hash_of = [&](const std::string& text, size_t limit) {
    uint64_t hash = 0;
    read_questions(write(text), limit, &hash);
    return hash;
  };
  const std::string one = R"({"question": "q", "answer": "#### 1"})"
                          "\n",
                    two = R"({"question": "r", "answer": "#### 1"})"
                          "\n";
  EXPECT_EQ(hash_of(one + two, 0), hash_of(one + two, 1));
  EXPECT_NE(hash_of(one + two, 0), hash_of(one, 0));
  EXPECT_NE(hash_of(one + two, 0), hash_of(two + one, 0));

  const std::filesystem::path copy = folder_ / "model";
  std::filesystem::copy(kModel, copy);
  EvalOptions here = options(1), there = options(1);
  there.world.model = copy / "." / "";
  const RunFacts split = {{"math", "split"}}, f32 = {{"math", "f32"}};
  const RunFacts facts = run_facts(here, 7, split);
  EXPECT_EQ(run_facts(there, 7, split), facts);
  EXPECT_NE(run_facts(there, 8, split), facts);
  EXPECT_NE(run_facts(there, 7, f32), facts);
  EXPECT_EQ(one_line(facts).substr(0, 32), "data \"0000000000000007\", model \"");
  std::ofstream(copy / "tokenizer_config.json", std::ios::app) << "\n";
  EXPECT_NE(run_facts(there, 7, split), facts);
  here.world.plan.ranks = 2;
  EXPECT_NE(run_facts(here, 7, split), facts);
}

TEST_F(EvalFiles, of_other_data_models_or_settings_are_told_from_the_file_beside_them) {
  const std::filesystem::path results = folder_ / "file.jsonl";
  EXPECT_TRUE(read_facts(results).empty());
  const RunFacts base = {{"data", "a"}, {"model", "m"}, {"plan", "p"}, {"ranks", "1"}, {"math", "split"}};
  std::ofstream(facts_path(results)) << facts_json(base, {});
  EXPECT_EQ(read_facts(results), base);
  EXPECT_EQ(facts_that_differ(base, base), "");
  EXPECT_EQ(facts_that_differ({}, base), "");
  const RunFacts three = {{"data", "a"}, {"model", "m"}, {"plan", "q"}, {"ranks", "3"}, {"math", "split"}};
  EXPECT_EQ(facts_that_differ(base, three), "ranks \"1\" there, \"3\" here\n");
  const RunFacts other = {{"data", "b"}, {"model", "n"}, {"plan", "p"}, {"ranks", "1"}, {"math", "split"}};
  const std::string told = facts_that_differ(base, other);
  EXPECT_NE(told.find("other data there"), std::string::npos) << told;
  EXPECT_NE(told.find("another model there"), std::string::npos) << told;
  std::ofstream(facts_path(results)) << R"({"run": {"ranks": 1}})";
  EXPECT_NE(refusal([&] { read_facts(results); }).find("file.jsonl.run.json: run.ranks is 1"), std::string::npos);
}

TEST_F(EvalFiles, partial_answers_outlive_a_smaller_limit_a_torn_line_and_a_stop) {
  const std::string out = folder_ / "file.jsonl", path = out + ".partial";
  const auto text = [&] {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto answer = [](int64_t id) { return Answer{.id = id, .question = "q", .answer = "#### 1", .output = "o"}; };
  {
    PartialResults first(out, "key");
    EXPECT_TRUE(first.known().empty());
    for (int64_t id : {2, 0}) first.add(answer(id));
  }
  const std::string whole = "key\n" + answer_line(answer(2)) + answer_line(answer(0));
  EXPECT_EQ(text(), whole);
  std::ofstream(path, std::ios::app | std::ios::binary) << answer_line(answer(1)).substr(0, 20);
  {
    PartialResults second(out, "key");
    EXPECT_EQ(second.known().size(), 2u);
    EXPECT_EQ(text(), whole);
    EXPECT_EQ(second.finish(2), 1u);  // that of question 2 is kept
  }
  EXPECT_EQ(text(), whole);
  try {
    PartialResults(out, "other");
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(std::string(error.what()).find("file.jsonl.partial holds the answers of another run"), std::string::npos);
  }
  std::ofstream(path, std::ios::app | std::ios::binary) << "{damaged\n";
  const std::string damaged = refusal([&] { PartialResults(out, "key"); });
  EXPECT_NE(damaged.find("file.jsonl.partial, line 4"), std::string::npos) << damaged;
  EXPECT_NE(damaged.find("delete it to begin again"), std::string::npos) << damaged;
  std::ofstream(path, std::ios::binary) << whole;
  PartialResults third(out, "key");
  third.add(answer(1));
  EXPECT_EQ(third.finish(3), 0u);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(EvalComparison, counts_pairs_and_finds_where_outputs_part) {
  const auto answer = [](int64_t id, const std::string& output, bool correct) {
    return Answer{
        .id = id, .question = fmt::format("q{}", id), .answer = "#### 1", .output = output, .correct = correct};
  };
  std::map<int64_t, Answer> base;
  base[0] = answer(0, "abcdef", true), base[1] = answer(1, "same", true), base[2] = answer(2, "x", false);
  std::vector<Answer> now = {answer(0, "abXdef", false), answer(1, "same", true), answer(2, "y", true),
                             answer(9, "new", true)};
  now[0].token_ends = {1, 2, 4, 6}, now[0].margins = {5, 4, 0.25, 2, 1};
  const EvalComparison result = compare_answers(base, now);
  EXPECT_EQ(result.paired.questions, 3);
  EXPECT_EQ(result.paired.b, 1);
  EXPECT_EQ(result.paired.c, 1);
  EXPECT_EQ(result.equal_outputs, 1);
  ASSERT_EQ(result.differences.size(), 2u);
  EXPECT_EQ(result.differences[0].token, 2);
  EXPECT_EQ(result.differences[0].margin, 0.25f);
  EXPECT_EQ(result.differences[1].token, -1);
  now[1].question = "another";
  EXPECT_THROW(compare_answers(base, now), Error);
  EXPECT_THROW(compare_answers({}, now), Error);
}

// As many questions as exclude a loss where no answer changes.
GateReport gate(PaddingGate which) {
  return run_padding_gate({.gate = which, .pad_for = 3, .eval = options(1)}, questions(150));
}

const GateReport::Check& accuracy_of(const GateReport& report) {
  return *std::ranges::find(report.checks, "accuracy", &GateReport::Check::name);
}

TEST(PaddingGates, do_not_pass_without_evidence) {
  const GateReport few = run_padding_gate({.eval = options(1)}, questions(2));
  EXPECT_FALSE(few.passed());
  EXPECT_FALSE(accuracy_of(few).passed);
  EXPECT_NE(
      accuracy_of(few).text.find("not shown: a loss of 2 points is not excluded, which needs about 149 questions"),
      std::string::npos)
      << few.text();
  EvalOptions short_answers = options(1);
  short_answers.max_tokens = 1;
  const GateReport none = run_padding_gate({.eval = short_answers}, questions(150));
  EXPECT_EQ(none.stock.correct, 0);
  EXPECT_FALSE(none.passed());
  EXPECT_NE(accuracy_of(none).text.find("not shown: no answer is right there"), std::string::npos) << none.text();
}

TEST(PaddingGates, do_not_pass_when_a_matrix_moves_to_another_kernel) {
  const std::vector<GateReport::KernelUse> stock = {{0, "linear", "MXFP4", "vnni", 60},
                                                    {0, "attention", "F32", "avx2", 0}};
  EXPECT_TRUE(compare_kernels(stock, stock).passed);
  EXPECT_EQ(compare_kernels(stock, stock).text,
            "the same on every rank: linear 60 of MXFP4 by vnni; attention F32 by avx2");
  std::vector<GateReport::KernelUse> padded = stock;
  padded[0].kernel = "reference";
  EXPECT_FALSE(compare_kernels(stock, padded).passed);
  EXPECT_EQ(compare_kernels(stock, padded).text,
            "rank 0: linear 60 of MXFP4 by vnni stock, linear 60 of MXFP4 by reference padded");
  padded = stock;
  padded[0].matrices = 59;
  EXPECT_FALSE(compare_kernels(stock, padded).passed);
  padded = stock;
  padded.push_back({0, "linear", "BF16", "avx2", 1});
  EXPECT_EQ(compare_kernels(stock, padded).text, "rank 0: nothing stock, linear 1 of BF16 by avx2 padded");
  EXPECT_EQ(compare_kernels(padded, stock).text, "rank 0: linear 1 of BF16 by avx2 stock, nothing padded");
}

TEST(PaddingGates, refuse_a_rank_count_that_needs_no_padding) {
  const auto refusal = [](const std::string& model, int pad_for) -> std::string {
    EvalOptions eval = options(1);
    eval.world.model = model;
    try {
      run_padding_gate({.gate = PaddingGate::kB, .pad_for = pad_for, .eval = eval}, questions(2));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(refusal(kModel, 2).find("fits 2 ranks already"), std::string::npos);
  const std::string three_heads = COPRIME_SOURCE_DIR "/tests/goldens/llama-9q3kv-tied";
  EXPECT_NE(refusal(three_heads, 3).find("fits 3 ranks already"), std::string::npos);
}

TEST(PaddingGates, a_and_b_pass_on_the_embedded_model) {
  const GateReport a = gate(PaddingGate::kA), b = gate(PaddingGate::kB);
  EXPECT_TRUE(a.passed()) << a.text();
  EXPECT_TRUE(b.passed()) << b.text();
  EXPECT_EQ(a.padded.ranks, 1);
  EXPECT_EQ(b.padded.ranks, 2);
  EXPECT_EQ(a.padded.counts.kv_heads, 6);
  EXPECT_EQ(b.padded.counts.kv_heads, 6);
  EXPECT_GT(a.padded.counts.intermediate, a.stock.counts.intermediate);
  EXPECT_EQ(b.padded.counts.intermediate, b.stock.counts.intermediate);
  ASSERT_EQ(a.padded.kernels.size(), 4u);
  EXPECT_EQ(a.padded.kernels[0].operation, "linear");
  EXPECT_EQ(a.padded.kernels[0].format, "BF16");
  EXPECT_EQ(b.padded.kernels.size(), 8u);
  EXPECT_EQ(b.padded.kernels[4].rank, 1);
  EXPECT_EQ(b.padded.kernels[4].matrices, b.padded.kernels[0].matrices);
  EXPECT_LT(b.padded.padded_tensors, a.padded.padded_tensors);  // the MLP's stay
  EXPECT_EQ(nlohmann::json::parse(a.json()).at("checks").size(), 6u);
}

}  // namespace
}  // namespace coprime
