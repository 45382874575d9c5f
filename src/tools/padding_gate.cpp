#include "tools/padding_gate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "device/cpu/explain_kernels.h"
#include "engine/generation.h"
#include "model/weights.h"
#include "template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace coprime {
namespace {

constexpr size_t kSnippets = 8;      // whose tokens are compared one by one
constexpr size_t kForced = 4;        // questions whose logits are compared
constexpr double kMaxMeanKl = 1e-3;  // nats; a wrong head or scale is far beyond
constexpr double kMinTopAgreement = 0.99;

struct ArmRun {
  ShardPlan plan;
  EvalRun eval;
  std::vector<std::vector<float>> logits;  // of the forced texts
};

// Texts whose logits both arms compute: the questions with their right answers.
std::vector<std::vector<int32_t>> forced_texts(const EvalOptions& options, const std::vector<Question>& questions) {
  const Tokenizer tokenizer = Tokenizer::open(options.world.model);
  const ChatTemplate chat = ChatTemplate::open(options.world.model);
  std::vector<std::vector<int32_t>> texts;
  for (size_t i = 0; i < std::min(kForced, questions.size()); ++i) {
    const RenderedChat rendered = chat.render(conversation_of(questions[i].question), fmt::format("question {}", i),
                                              {.variables = options.chat_options, .now = local_time()});
    texts.push_back(tokenizer.encode(rendered.text, rendered.foreign, rendered.structure));
    for (const int32_t id : tokenizer.encode(questions[i].answer, false)) texts.back().push_back(id);
    texts.back().resize(std::min(texts.back().size(), rendered.text.size() + static_cast<size_t>(options.max_tokens)));
  }
  return texts;
}

ArmRun run_arm(EvalOptions options, const PlanOptions& plan, const std::vector<Question>& questions,
               const std::vector<std::vector<int32_t>>& texts) {
  options.world.plan = plan;
  ArmRun run{ShardPlan(read_model_shape(options.world.model), plan), {}, {}};
  run.eval = run_eval(options, questions, {}, [&](Front& front) {
    for (const std::vector<int32_t>& text : texts) {
      const auto length = std::min(static_cast<int64_t>(text.size()), front.options().context);
      run.logits.push_back(teacher_forced_logits(front, std::span(text).first(static_cast<size_t>(length)), 1, length));
    }
  });
  return run;
}

// As this host's CPU binds what each rank holds under the plan: its matrices by the format in which they are packed.
std::vector<GateReport::KernelUse> kernels_of(const WorldOptions& world, const ShardPlan& plan,
                                              const Checkpoint& checkpoint) {
  std::vector<GateReport::KernelUse> uses;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    std::map<DType, int> matrices;
    load_shard(checkpoint, plan, rank, [&](const LocalTensor& tensor) {
      if (weight_use(tensor.rule->id) == WeightUse::kLinear) ++matrices[tensor.type];
      return nullptr;  // headers alone
    });
    std::vector<DType> types;
    for (const auto& [type, count] : matrices) types.push_back(type);
    const Isa limit = world.isa[world.isa.size() == 1 ? 0 : static_cast<size_t>(rank)];
    const CpuOptions options{.math = world.math, .exact = world.plan.exact};
    const std::vector<KernelChoice> choices = explain_kernels(this_cpu(limit), options, types, world.kv_type);
    for (size_t i = 0; i < choices.size(); ++i) {
      uses.push_back({rank, choices[i].operation, choices[i].format, choices[i].chosen,
                      i < types.size() ? matrices.at(types[i]) : 0});
    }
  }
  return uses;
}

GateReport::Arm arm_report(const ArmRun& run, const WorldOptions& world) {
  const Checkpoint checkpoint = Checkpoint::open(world.model);
  GateReport::Arm arm{.ranks = run.plan.ranks(), .counts = run.plan.padded()};
  for (const Tally::Line& line : check_checkpoint(checkpoint, run.plan).lines) {
    arm.tensors += line.found;
    if (line.padded) arm.padded_tensors += line.found;
  }
  arm.kernels = kernels_of(world, run.plan, checkpoint);
  arm.correct = run.eval.correct;
  arm.questions = static_cast<int64_t>(run.eval.answers.size());
  arm.step_ms =
      static_cast<double>(run.eval.step_us) / 1000 / static_cast<double>(std::max<int64_t>(1, run.eval.steps));
  arm.accuracy = fmt::format("{} of {}", arm.correct, arm.questions);
  return arm;
}

// Tensors of rules whose axis the plan widens, as the layer list predicts them.
int predicted_padded(const ShardPlan& plan) {
  int count = 0;
  for (const Rule& rule : plan.rules()) {
    if (rule.axis && plan.padded_size(*rule.axis) != plan.real_size(*rule.axis)) count += rule.expected;
  }
  return count;
}

// Whether there is anything that the gate tests: a count of heads, or for gate A also a width.
bool grows(const Counts& stock, const Counts& padded, bool heads_only) {
  const bool heads = padded.q_heads > stock.q_heads || padded.kv_heads > stock.kv_heads ||
                     padded.linear_key_heads > stock.linear_key_heads ||
                     padded.linear_value_heads > stock.linear_value_heads;
  return heads || (!heads_only && (padded.intermediate > stock.intermediate || padded.vocab > stock.vocab));
}

GateReport::Check coverage(const GateReport& report, const ArmRun& stock, const ArmRun& padded) {
  const int of_stock = predicted_padded(stock.plan), of_padded = predicted_padded(padded.plan);
  const bool holds = report.stock.tensors == report.padded.tensors && report.stock.padded_tensors == of_stock &&
                     report.padded.padded_tensors == of_padded && of_padded >= of_stock;
  return {"coverage", holds,
          fmt::format("{} of {} tensors padded, {} expected; stock {}, {} expected", report.padded.padded_tensors,
                      report.padded.tensors, of_padded, report.stock.padded_tensors, of_stock)};
}

std::string use_text(const GateReport::KernelUse& use) {
  const std::string count = use.matrices > 0 ? fmt::format("{} of ", use.matrices) : "";
  return fmt::format("{} {}{} by {}", use.operation, count, use.format, use.kernel);
}

// The ranks' devices as they report themselves, then each of their kernels.
GateReport::Check kernels(const GateReport& report, const ArmRun& stock, const ArmRun& padded) {
  for (size_t rank = 0; rank < padded.eval.ranks.size(); ++rank) {
    const RankReady& a = stock.eval.ranks[rank];
    const RankReady& b = padded.eval.ranks[rank];
    if (a.order != b.order || a.device != b.device)
      return {"kernels", false,
              fmt::format("rank {}: {} ({}) stock, {} ({}) padded", rank, a.device, a.order, b.device, b.order)};
  }
  return compare_kernels(report.stock.kernels, report.padded.kernels);
}

GateReport::Check numbers(const ArmRun& stock, const ArmRun& padded) {
  int64_t checked = 0, bad = 0;
  for (const ArmRun* run : {&stock, &padded}) {
    for (const std::vector<float>& logits : run->logits) {
      checked += static_cast<int64_t>(logits.size());
      bad += std::ranges::count_if(logits, [](float value) { return !std::isfinite(value); });
    }
  }
  return {"NaN trace", bad == 0 && checked > 0, fmt::format("{} of {} logits are no numbers", bad, checked)};
}

// KL divergence of the padded row from the stock one, in nats.
double divergence(std::span<const float> stock, std::span<const float> padded) {
  const auto log_sum = [](std::span<const float> row) {
    const double most = *std::ranges::max_element(row);
    double sum = 0;
    for (const float value : row) sum += std::exp(value - most);
    return most + std::log(sum);
  };
  const double a = log_sum(stock), b = log_sum(padded);
  double kl = 0;
  for (size_t i = 0; i < stock.size(); ++i) kl += std::exp(stock[i] - a) * ((stock[i] - a) - (padded[i] - b));
  return kl;
}

GateReport::Check logits(const ArmRun& stock, const ArmRun& padded) {
  const auto vocab = static_cast<size_t>(stock.plan.shape().vocab);
  double kl = 0, largest = 0;
  size_t rows = 0, agree = 0;
  for (size_t text = 0; text < stock.logits.size(); ++text) {
    const std::span<const float> a = stock.logits[text], b = padded.logits[text];
    for (size_t at = 0; at < a.size(); at += vocab, ++rows) {
      const auto x = a.subspan(at, vocab), y = b.subspan(at, vocab);
      kl += divergence(x, y);
      agree += std::ranges::max_element(x) - x.begin() == std::ranges::max_element(y) - y.begin();
      for (size_t i = 0; i < vocab; ++i) largest = std::max<double>(largest, std::fabs(x[i] - y[i]));
    }
  }
  kl /= static_cast<double>(std::max<size_t>(1, rows));
  const double share = static_cast<double>(agree) / static_cast<double>(std::max<size_t>(1, rows));
  return {"logits", kl < kMaxMeanKl && share >= kMinTopAgreement,
          fmt::format("{} rows: mean KL {:.2g}, the best token the same in {:.2f}%, largest difference {:.2g}", rows,
                      kl, 100 * share, largest)};
}

GateReport::Check accuracy(const EvalComparison& comparison) {
  return {
      "accuracy", comparison.not_worse(),
      fmt::format("{} stock, {} padded of {}; b {}, c {}, p {:.3g}; difference {:+.2f} points, at least {:+.2f}: {}",
                  comparison.base_correct, comparison.correct, comparison.paired.questions, comparison.paired.b,
                  comparison.paired.c, comparison.paired.p_value(), 100 * comparison.paired.difference(),
                  100 * comparison.paired.lower(), comparison.verdict())};
}

// For a person to look at: different geometry may round differently, so that this decides nothing.
GateReport::Check snippets(const GateReport& report, const ArmRun& padded) {
  const size_t count = std::min(kSnippets, padded.eval.answers.size());
  std::string text;
  size_t equal = count;
  for (const EvalComparison::Difference& each : report.comparison.differences) {
    if (each.id >= static_cast<int64_t>(count)) continue;
    --equal;
    text += fmt::format("; question {} from token {} on, by {:.2g}", each.id, each.token, each.margin.value_or(0));
  }
  return {"snippets", true, fmt::format("{} of {} equal{}", equal, count, text)};
}

std::string geometry_text(const Counts& counts) {
  return fmt::format("{} query, {} KV, {} and {} linear heads, MLP {}, vocabulary {}", counts.q_heads, counts.kv_heads,
                     counts.linear_key_heads, counts.linear_value_heads, counts.intermediate, counts.vocab);
}

nlohmann::ordered_json kernels_json(const std::vector<GateReport::KernelUse>& kernels) {
  auto rows = nlohmann::ordered_json::array();
  for (const GateReport::KernelUse& use : kernels) {
    rows.push_back({{"rank", use.rank},
                    {"operation", use.operation},
                    {"format", use.format},
                    {"kernel", use.kernel},
                    {"matrices", use.matrices}});
  }
  return rows;
}

nlohmann::ordered_json arm_json(const GateReport::Arm& arm) {
  return {{"ranks", arm.ranks},
          {"q_heads", arm.counts.q_heads},
          {"kv_heads", arm.counts.kv_heads},
          {"linear_key_heads", arm.counts.linear_key_heads},
          {"linear_value_heads", arm.counts.linear_value_heads},
          {"intermediate", arm.counts.intermediate},
          {"vocab", arm.counts.vocab},
          {"tensors", arm.tensors},
          {"padded_tensors", arm.padded_tensors},
          {"correct", arm.correct},
          {"questions", arm.questions},
          {"step_ms", arm.step_ms},
          {"kernels", kernels_json(arm.kernels)}};
}

}  // namespace

GateReport::Check compare_kernels(const std::vector<GateReport::KernelUse>& stock,
                                  const std::vector<GateReport::KernelUse>& padded) {
  const auto [one, other] = std::ranges::mismatch(stock, padded);
  if (one != stock.end() || other != padded.end()) {
    const bool lost = other == padded.end(), added = one == stock.end();
    return {"kernels", false,
            fmt::format("rank {}: {} stock, {} padded", lost ? one->rank : other->rank,
                        added ? "nothing" : use_text(*one), lost ? "nothing" : use_text(*other))};
  }
  std::string text = "the same on every rank";
  for (const GateReport::KernelUse& use : padded)
    if (use.rank == 0) text += (&use == padded.data() ? ": " : "; ") + use_text(use);
  return {"kernels", true, text};
}

bool GateReport::passed() const {
  return std::ranges::all_of(checks, [](const Check& check) { return check.passed; });
}

std::string GateReport::text() const {
  std::string text = fmt::format("gate {} on {} rank{}\n", gate == PaddingGate::kA ? "A" : "B", padded.ranks,
                                 padded.ranks == 1 ? "" : "s");
  text += fmt::format("stock      {}\n", geometry_text(stock.counts));
  text += fmt::format("padded     {}\n", geometry_text(padded.counts));
  for (const Check& check : checks)
    text += fmt::format("{:<10} {}  {}\n", check.name, check.passed ? "ok " : "BAD", check.text);
  text += fmt::format("steps      {:.2f} ms stock, {:.2f} ms padded ({:+.1f}%)\n", stock.step_ms, padded.step_ms,
                      100 * (padded.step_ms / stock.step_ms - 1));
  return text + (passed() ? "passed\n" : "failed\n");
}

std::string GateReport::json() const {
  nlohmann::ordered_json result{{"gate", gate == PaddingGate::kA ? "a" : "b"},
                                {"passed", passed()},
                                {"stock", arm_json(stock)},
                                {"padded", arm_json(padded)},
                                {"b", comparison.paired.b},
                                {"c", comparison.paired.c},
                                {"p_value", comparison.paired.p_value()},
                                {"difference", comparison.paired.difference()},
                                {"lower", comparison.paired.lower()},
                                {"upper", comparison.paired.upper()}};
  for (const Check& check : checks)
    result["checks"].push_back({{"name", check.name}, {"passed", check.passed}, {"text", check.text}});
  return result.dump();
}

GateReport run_padding_gate(const GateOptions& options, const std::vector<Question>& questions) {
  const bool heads_only = options.gate == PaddingGate::kB;
  PlanOptions stock = options.eval.world.plan;
  stock.ranks = heads_only ? 2 : 1;
  stock.pad_for = 0;
  stock.mlp_width = 0;
  stock.dummies = Dummies::kHeld;
  PlanOptions padded = stock;
  padded.pad_for = options.pad_for;
  const ModelShape shape = read_model_shape(options.eval.world.model);
  const Counts counts = ShardPlan(shape, stock).padded();
  if (heads_only) padded.mlp_width = counts.intermediate;
  if (!grows(counts, ShardPlan(shape, padded).padded(), heads_only)) {
    fail(ErrorKind::kUsage, "the stock geometry fits {} ranks already: there is nothing to test; choose another --for",
         options.pad_for);
  }

  const std::vector<std::vector<int32_t>> texts = forced_texts(options.eval, questions);
  const ArmRun base = run_arm(options.eval, stock, questions, texts);
  const ArmRun wide = run_arm(options.eval, padded, questions, texts);
  GateReport report{.gate = options.gate,
                    .stock = arm_report(base, options.eval.world),
                    .padded = arm_report(wide, options.eval.world)};
  std::map<int64_t, Answer> answers;
  for (const Answer& answer : base.eval.answers) answers.emplace(answer.id, answer);
  report.comparison = compare_answers(answers, wide.eval.answers);
  report.checks = {coverage(report, base, wide), kernels(report, base, wide), numbers(base, wide),
                   logits(base, wide),           accuracy(report.comparison), snippets(report, wide)};
  return report;
}

}  // namespace coprime
