#include "tools/eval.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/lines.h"
#include "engine/generation_config.h"
#include "engine/side_by_side.h"
#include "json/json.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace coprime {
namespace {

std::string where_of(const std::filesystem::path& path, const Line& line) {
  return fmt::format("{}, line {}", path.string(), line.number);
}

// Until `use` gives false.
void each_json_line(const std::filesystem::path& path, const std::function<bool(const Line&)>& use) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    fail(ErrorKind::kModel, "{}: cannot be read: give a file of JSON lines", path.string());
  read_lines(file, path.string(), use);
}

Question parse_question(const std::string& line, const std::string& where) {
  const JsonDocument document(line, where);
  const JsonNode root = document.node();
  Question question{std::string(root.need("question").text()), std::string(root.need("answer").text())};
  if (final_answer(question.answer).empty())
    fail(ErrorKind::kModel, "{}: the answer has no \"#### n\": expected GSM8K's form", where);
  return question;
}

void add_answer(const std::string& line, const std::string& where, std::map<int64_t, Answer>* answers) {
  const JsonDocument document(line, where);
  const JsonNode root = document.node();
  Answer answer{.question = std::string(root.need("question").text()),
                .answer = std::string(root.need("answer").text()),
                .got = std::string(root.need("got").text()),
                .output = std::string(root.need("output").text()),
                .correct = root.need("correct").flag()};
  if (root.need("id").value().get(answer.id) != simdjson::SUCCESS) root.need("id").refuse("a number");
  if (!answers->emplace(answer.id, answer).second) root.need("id").refuse("each id once");
}

std::string text_of(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, std::vector<size_t>* ends) {
  Utf8Stream stream;
  std::string text;
  for (const int32_t id : ids) {
    if (!tokenizer.is_special(id)) text += stream.push(tokenizer.bytes(id));
    ends->push_back(text.size());
  }
  return text + stream.finish();
}

// "+0336.50dollars" -> "336.5"; none for what is no number, or more than one.
std::optional<std::string> shortest_number(std::string_view text) {
  const auto digits = [&] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::string_view found = text.substr(0, count);
    text.remove_prefix(count);
    return found;
  };
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  std::string_view whole = digits(), fraction;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    fraction = digits();
  }
  if ((whole.empty() && fraction.empty()) || text.find_first_of("0123456789.,:/*^=+-") != text.npos)
    return std::nullopt;
  while (whole.starts_with('0')) whole.remove_prefix(1);
  while (fraction.ends_with('0')) fraction.remove_suffix(1);
  if (whole.empty() && fraction.empty()) return "0";
  return fmt::format("{}{}{}{}", negative ? "-" : "", whole.empty() ? "0" : whole, fraction.empty() ? "" : ".",
                     fraction);
}

Answer judged(int64_t id, const Question& question, const Tokenizer& tokenizer, const GreedyResult& result) {
  Answer answer{.id = id, .question = question.question, .answer = question.answer, .margins = result.margins};
  answer.output = text_of(tokenizer, result.ids, &answer.token_ends);
  answer.got = final_answer(answer.output);
  answer.correct = !answer.got.empty() && answer.got == final_answer(question.answer);
  return answer;
}

std::vector<GreedyRequest> requests_of(const EvalOptions& options, const Tokenizer& tokenizer,
                                       const std::vector<Question>& questions, const std::vector<size_t>& open) {
  const ChatTemplate chat = ChatTemplate::open(options.world.model);
  std::vector<GreedyRequest> requests;
  for (const size_t i : open) {
    const RenderedChat rendered = chat.render(conversation_of(questions[i].question), fmt::format("question {}", i),
                                              {.variables = options.chat_options, .now = local_time()});
    requests.push_back({tokenizer.encode(rendered.text, rendered.foreign, rendered.structure), options.max_tokens});
  }
  return requests;
}

// The world for these requests, of the questions `open`: room for the longest, and no more places than there are
// questions.
WorldOptions world_for(const EvalOptions& options, const std::vector<GreedyRequest>& requests,
                       const std::vector<Question>& questions, const std::vector<size_t>& open, int64_t max_positions) {
  WorldOptions world = options.world;
  int64_t longest = 1;
  for (size_t i = 0; i < requests.size(); ++i) {
    const int64_t needed = static_cast<int64_t>(requests[i].prompt.size()) + requests[i].max_tokens;
    if (needed > max_positions) {
      fail(ErrorKind::kUsage,
           "the question in line {} of the data needs {} tokens with its answer, and the model's context holds {}: "
           "lower --max-tokens",
           questions[open[i]].line, needed, max_positions);
    }
    longest = std::max(longest, needed);
  }
  world.context = longest;
  world.sequences = std::max(1, std::min(options.concurrency, static_cast<int>(requests.size())));
  world.max_rows = std::max(world.max_rows, world.sequences);
  return world;
}

EvalComparison::Difference difference_of(const Answer& base, const Answer& answer) {
  EvalComparison::Difference result{.id = answer.id,
                                    .base_correct = base.correct,
                                    .correct = answer.correct,
                                    .base_got = base.got,
                                    .got = answer.got};
  if (answer.margins.empty()) return result;
  const auto same = std::ranges::mismatch(base.output, answer.output).in2 - answer.output.begin();
  const auto token = std::ranges::upper_bound(answer.token_ends, static_cast<size_t>(same)) - answer.token_ends.begin();
  result.token = token;
  if (static_cast<size_t>(token) < answer.margins.size()) result.margin = answer.margins[static_cast<size_t>(token)];
  return result;
}

}  // namespace

std::vector<Question> read_questions(const std::filesystem::path& path, size_t limit, uint64_t* hash) {
  std::vector<Question> questions;
  each_json_line(path, [&](const Line& line) {
    if (line.text.empty()) return true;
    if (hash) *hash = hash_bytes(std::as_bytes(std::span(line.text)), *hash);
    if (limit == 0 || questions.size() < limit) {
      questions.push_back(parse_question(line.text, where_of(path, line)));
      questions.back().line = line.number;
    }
    return hash || limit == 0 || questions.size() < limit;
  });
  if (questions.empty()) fail(ErrorKind::kModel, "{}: there is no question in it", path.string());
  return questions;
}

std::string final_answer(std::string_view text) {
  const size_t mark = text.rfind("####");
  if (mark == text.npos) return {};
  std::string answer;
  for (const char c : text.substr(mark + 4)) {
    if (c == '\n') break;
    if (c != ' ' && c != '\t' && c != '\r' && c != ',' && c != '$') answer += c;
  }
  if (answer.ends_with('.')) answer.pop_back();
  return shortest_number(answer).value_or(answer);
}

std::string answer_line(const Answer& answer) {
  const nlohmann::ordered_json line{{"id", answer.id},   {"question", answer.question}, {"answer", answer.answer},
                                    {"got", answer.got}, {"correct", answer.correct},   {"output", answer.output}};
  return line.dump() + "\n";
}

std::map<int64_t, Answer> read_answers(const std::filesystem::path& path) {
  std::map<int64_t, Answer> answers;
  each_json_line(path, [&](const Line& line) {
    if (!line.text.empty()) add_answer(line.text, where_of(path, line), &answers);
    return true;
  });
  return answers;
}

std::map<int64_t, Answer> read_partial_answers(const std::filesystem::path& path, const std::string& key,
                                               uint64_t* whole) {
  std::map<int64_t, Answer> answers;
  *whole = 0;
  each_json_line(path, [&](const Line& line) {
    if (!line.ended) return false;
    if (line.number == 1 && line.text != key)
      fail(ErrorKind::kUsage, "{} holds the answers of another run ({}; this one is: {})", path.string(),
           line.text.substr(0, 300), key);
    if (line.number > 1 && !line.text.empty()) add_answer(line.text, where_of(path, line), &answers);
    *whole += line.text.size() + 1;
    return true;
  });
  return answers;
}

EvalRun run_eval(const EvalOptions& options, const std::vector<Question>& questions,
                 const std::map<int64_t, Answer>& known, const std::function<void(Front&)>& then) {
  const ModelShape shape = read_model_shape(options.world.model);
  const Tokenizer tokenizer = Tokenizer::open(options.world.model);
  std::vector<int32_t> ends = read_generation_config(options.world.model).eos;
  for (const int32_t id : tokenizer.eos_ids()) ends.push_back(id);

  EvalRun run;
  std::map<int64_t, Answer> answers;
  std::vector<size_t> open;
  for (size_t i = 0; i < questions.size(); ++i) {
    const auto found = known.find(static_cast<int64_t>(i));
    if (found == known.end()) {
      open.push_back(i);
    } else {
      answers.emplace(found->first, found->second);
    }
  }
  if (!open.empty() || then) {
    const std::vector<GreedyRequest> requests = requests_of(options, tokenizer, questions, open);
    Front front(world_for(options, requests, questions, open, shape.max_positions));
    const int64_t begin_us = now_us();
    generate_side_by_side(front, requests, ends, [&](size_t request, const GreedyResult& result) {
      Answer answer = judged(static_cast<int64_t>(open[request]), questions[open[request]], tokenizer, result);
      run.tokens += static_cast<int64_t>(result.margins.size());
      if (options.answered) options.answered(answer);
      answers.emplace(answer.id, std::move(answer));
    });
    run.seconds = static_cast<double>(now_us() - begin_us) / 1e6;
    run.steps = static_cast<int64_t>(front.statistics().steps);
    run.step_us = front.statistics().step_us;
    run.ranks = front.ranks();
    if (then) then(front);
  }
  for (auto& [id, answer] : answers) {
    run.correct += answer.correct;
    run.answers.push_back(std::move(answer));
  }
  return run;
}

EvalComparison compare_answers(const std::map<int64_t, Answer>& base, const std::vector<Answer>& answers) {
  EvalComparison result;
  for (const Answer& answer : answers) {
    const auto found = base.find(answer.id);
    if (found == base.end()) continue;
    if (found->second.question != answer.question)
      fail(ErrorKind::kModel, "the runs compared have different questions {}: give one of the same data", answer.id);
    const Answer& before = found->second;
    ++result.paired.questions;
    result.base_correct += before.correct;
    result.correct += answer.correct;
    result.paired.b += before.correct && !answer.correct;
    result.paired.c += !before.correct && answer.correct;
    if (before.output == answer.output) {
      ++result.equal_outputs;
    } else {
      result.differences.push_back(difference_of(before, answer));
    }
  }
  if (result.paired.questions == 0)
    fail(ErrorKind::kModel, "the runs compared have no question in common: give one of the same data");
  return result;
}

std::string EvalComparison::verdict() const {
  if (base_correct == 0) return "not shown: no answer is right there, so that none can be lost";
  if (paired.non_inferior()) return "not worse by 2 points or more";
  const std::string shown = "not shown: a loss of 2 points is not excluded";
  const std::optional<int64_t> needed = paired.questions_needed();
  return needed && *needed > paired.questions ? fmt::format("{}, which needs about {} questions", shown, *needed)
                                              : shown;
}

std::string EvalComparison::text() const {
  const auto share = [&](int64_t count) {
    return 100.0 * static_cast<double>(count) / static_cast<double>(paired.questions);
  };
  std::string text = fmt::format("against  {} of {} correct ({:.2f}%), here {} ({:.2f}%)\n", base_correct,
                                 paired.questions, share(base_correct), correct, share(correct));
  text += fmt::format("paired   b {} (right there alone), c {} (right here alone), exact McNemar p {:.3g}\n", paired.b,
                      paired.c, paired.p_value());
  text += fmt::format("         difference {:+.2f} points, 95% interval {:+.2f} to {:+.2f}: {}\n",
                      100 * paired.difference(), 100 * paired.lower(), 100 * paired.upper(), verdict());
  text += fmt::format("outputs  {} of {} equal\n", equal_outputs, paired.questions);
  for (const Difference& each : differences) {
    const auto word = [](bool right) { return right ? "right" : "wrong"; };
    text += fmt::format("         question {}: {:?} ({}) there, {:?} ({}) here", each.id, each.base_got,
                        word(each.base_correct), each.got, word(each.correct));
    if (each.token >= 0) text += fmt::format(", from token {} on", each.token);
    if (each.margin) text += fmt::format(", which led by {:.3g}", *each.margin);
    text += "\n";
  }
  return text;
}

}  // namespace coprime
