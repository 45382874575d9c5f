// coprime eval, coprime gate: accuracy on questions, and what padding does to it.
#include "tools/eval.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/progress_line.h"
#include "tools/padding_gate.h"
#include "tools/partial_results.h"
#include "tools/run_facts.h"

namespace coprime {
namespace {

// A bar of the questions that are answered.
class Progress {
 public:
  explicit Progress(size_t total) : total_(total) {}

  void add(bool correct) {
    ++done_;
    correct_ += correct;
    constexpr size_t kWidth = 30;
    const size_t filled = std::min(kWidth, kWidth * done_ / std::max<size_t>(1, total_));
    line_.show(fmt::format("[{}{}] {} of {}, {} right ", std::string(filled, '#'), std::string(kWidth - filled, '.'),
                           done_, total_, correct_),
               now_us());
  }

 private:
  ProgressLine line_{terminal_write()};
  size_t total_, done_ = 0, correct_ = 0;
};

EvalOptions eval_options(const WorldSettings& world, const EvalSettings& settings) {
  return {.world = world.options(),
          .concurrency = settings.concurrency,
          .max_tokens = settings.max_tokens,
          .chat_options = settings.chat_options};
}

// Those that change results and are none of EvalOptions.
RunFacts settings_of(const WorldSettings& world) {
  return {{"pad_for", std::to_string(world.pad_for)},
          {"mlp_width", std::to_string(world.mlp_width)},
          {"math", world.math},
          {"kv", world.kv},
          {"isa", world.isa},
          {"exact", world.exact ? "yes" : "no"}};
}

}  // namespace

void run_eval_command(const WorldSettings& world, const EvalSettings& settings) {
  EvalOptions options = eval_options(world, settings);
  uint64_t data_hash = 0;
  const std::vector<Question> questions = read_questions(settings.data, settings.limit, &data_hash);
  std::map<int64_t, Answer> base;
  RunFacts base_facts;
  if (!settings.against.empty()) {
    base = read_answers(settings.against);
    base_facts = read_facts(settings.against);
  }
  if (!settings.out.empty()) {
    for (const std::filesystem::path& out : {std::filesystem::path(settings.out), facts_path(settings.out)})
      check_output_flag("--out", out, {world.model, settings.data, settings.against});
  }

  const RunFacts facts = run_facts(options, data_hash, settings_of(world));
  if (!settings.out.empty() && std::filesystem::exists(settings.out)) {
    if (const std::string differ = facts_that_differ(read_facts(settings.out), facts); !differ.empty())
      fmt::print(stderr, "{} holds another run, which this one will replace:\n{}", settings.out, differ);
  }
  PartialResults partial(settings.out, one_line(facts));
  if (!partial.known().empty())
    fmt::print(stderr, "{} answers taken from {}\n", partial.known().size(), partial.path());
  EvalRun run;
  {
    Progress progress(questions.size());
    for (const auto& [id, answer] : partial.known()) {
      if (id < static_cast<int64_t>(questions.size())) progress.add(answer.correct);
    }
    options.answered = [&](const Answer& answer) {
      partial.add(answer);
      progress.add(answer.correct);
    };
    run = run_eval(options, questions, partial.known());
  }
  if (!settings.out.empty()) {
    std::string lines;
    for (const Answer& answer : run.answers) lines += answer_line(answer);
    write_output(settings.out, lines);
    write_output(facts_path(settings.out), facts_json(facts, run));
    if (const size_t later = partial.finish(questions.size()); later > 0)
      fmt::print(stderr, "{} is kept: it holds {} answers to questions after --limit\n", partial.path(), later);
  }
  const auto count = static_cast<double>(run.answers.size());
  std::string text = fmt::format("accuracy {} of {} ({:.2f}%) on {} rank{}\n", run.correct, run.answers.size(),
                                 100 * static_cast<double>(run.correct) / count, options.world.plan.ranks,
                                 options.world.plan.ranks == 1 ? "" : "s");
  if (run.seconds > 0)
    text += fmt::format("speed    {} tokens in {:.1f} s, {:.0f} a second\n", run.tokens, run.seconds,
                        static_cast<double>(run.tokens) / run.seconds);
  if (!settings.against.empty())
    text += facts_that_differ(base_facts, facts) + compare_answers(base, run.answers).text();
  print(text);
}

int run_gate_command(const WorldSettings& world, const GateSettings& settings) {
  if (world.ranks.ranks || world.pad_for != 0 || world.mlp_width != 0)
    fail(ErrorKind::kUsage,
         "the gate sets ranks and geometry: leave --ranks, --pad-for and --mlp-width away, give --for");
  GateOptions options{.gate = settings.gate == "a" ? PaddingGate::kA : PaddingGate::kB,
                      .pad_for = settings.pad_for,
                      .eval = eval_options(world, settings.eval)};
  const std::vector<Question> questions = read_questions(settings.eval.data, settings.eval.limit);
  if (!settings.eval.out.empty()) check_output_flag("--out", settings.eval.out, {world.model, settings.eval.data});
  GateReport report;
  {
    Progress progress(2 * questions.size());
    options.eval.answered = [&](const Answer& answer) { progress.add(answer.correct); };
    report = run_padding_gate(options, questions);
  }
  if (!settings.eval.out.empty()) write_output(settings.eval.out, report.json() + "\n");
  print(settings.json ? report.json() + "\n" : report.text());
  return report.passed() ? 0 : 1;
}

}  // namespace coprime
