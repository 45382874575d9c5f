// Accuracy on questions of GSM8K's form: greedy answers, compared by the number behind "####".
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/front.h"
#include "tools/paired_statistics.h"

namespace coprime {

struct Question {
  std::string question, answer;  // the answer ends in "#### n"
  size_t line = 0;               // of the file, from 1
};

// One {"question", "answer"} a line, at most `limit` of them (0: all). Error(kModel) with file and line for anything
// else, or an answer without "####". With `hash`, of the lines of the whole file, also those after the limit.
std::vector<Question> read_questions(const std::filesystem::path& path, size_t limit, uint64_t* hash = nullptr);

// What stands behind the last "####", up to the line's end, without white space, thousands' commas, dollar signs and a
// full stop; of a number, with or without a word behind it, the number in its shortest form: "$1,336.00 in all" is
// "1336". Empty if there is none.
std::string final_answer(std::string_view text);

struct Answer {
  int64_t id = 0;  // the question's place in the file, from 0
  std::string question, answer, got, output;
  bool correct = false;
  // Of an answer made by this process: where each token ends in `output`, and by how much it led the next best (the
  // end's own token has a margin, too). Not in the file.
  std::vector<size_t> token_ends;
  std::vector<float> margins;
};

// A line of a results file: {"id", "question", "answer", "got", "correct", "output"}.
std::string answer_line(const Answer& answer);
// By id. Error(kModel) with file and line.
std::map<int64_t, Answer> read_answers(const std::filesystem::path& path);
// Of a file whose first line is the key of the run that wrote it. A last line that is cut short is left out; `whole`
// becomes the bytes of all lines before it. Error(kUsage) for another key.
std::map<int64_t, Answer> read_partial_answers(const std::filesystem::path& path, const std::string& key,
                                               uint64_t* whole);

struct EvalOptions {
  WorldOptions world;  // context is set by what the questions need
  int concurrency = 8;
  int64_t max_tokens = 256;
  std::string chat_options;
  std::function<void(const Answer&)> answered;  // each, as it comes; may be empty
};

struct EvalRun {
  std::vector<Answer> answers;  // by id
  int64_t correct = 0;
  int64_t steps = 0, step_us = 0, tokens = 0;
  double seconds = 0;
  std::vector<RankReady> ranks;
};

// Answers those questions that `known` does not hold, in a world of their own. `then` is called with the world when all
// are answered; it may be empty.
EvalRun run_eval(const EvalOptions& options, const std::vector<Question>& questions,
                 const std::map<int64_t, Answer>& known = {}, const std::function<void(Front&)>& then = {});

// How two runs over the same questions differ.
struct EvalComparison {
  struct Difference {
    int64_t id = 0;
    bool base_correct = false, correct = false;
    std::string base_got, got;
    int64_t token = -1;           // the first that differs; -1: unknown, as another process made it
    std::optional<float> margin;  // of this run's token there
  };
  PairedStatistics paired;
  int64_t base_correct = 0, correct = 0, equal_outputs = 0;
  std::vector<Difference> differences;  // of the outputs

  // Whether it is shown that nothing is lost: by the interval, and where the base has right answers.
  bool not_worse() const { return base_correct > 0 && paired.non_inferior(); }
  std::string verdict() const;  // in words; where it is not shown, what that needs
  std::string text() const;     // accuracies, b and c, the test, the interval, the verdict and the differences
};

// Over the questions that both have. Error(kModel) if they have none, or if an id stands for two questions.
EvalComparison compare_answers(const std::map<int64_t, Answer>& base, const std::vector<Answer>& answers);

}  // namespace coprime
