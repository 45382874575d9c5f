#include "checkpoint/header_check.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/match.h"
#include "checkpoint/padding_check.h"
#include "geometry/rules.h"

namespace coprime {
namespace {

// Norms, the embedding, heads and whatever joins heads to one vector are the same at every rank count.
bool is_denied(std::string_view name) {
  constexpr auto kNames = std::to_array<std::string_view>({"token_embd.weight", "output.weight"});
  constexpr auto kEnds = std::to_array<std::string_view>(
      {"norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "fc.weight", "fc.weight_scale",
       "fc.weight_scale_inv", "embed_tokens.weight", "lm_head.weight"});
  constexpr auto kParts =
      std::to_array<std::string_view>({"visual.", "attention_conv.", "mlp_conv.", "candidate_selector."});
  return std::ranges::count(kNames, name) > 0 ||
         std::ranges::any_of(kEnds, [&](std::string_view end) { return name.ends_with(end); }) ||
         std::ranges::any_of(kParts, [&](std::string_view part) { return name.find(part) != name.npos; });
}

// What a drafter has beside its layers' attention and MLP.
std::string_view drafter_family(std::string_view name) {
  if (name == "norm.weight" || name.ends_with("norm.weight")) return "norms";
  if (name.starts_with("fc.weight")) return "fc";  // its scales, too
  if (name.find("_conv.") != name.npos) return "convolutions";
  if (name.starts_with("candidate_selector.")) return "selector";
  return {};
}

class Checker {
 public:
  Checker(const ShardPlan& plan, const Counts& padded) : plan_(plan), padded_(padded) {}

  // One tensor of each cut rule is read, too, as `verify` pads it.
  void add(const std::string& part, std::span<const NamedRule> names, const Findings& findings,
           const ShardPlan* verify) {
    for (const Match& match : findings.tensors) add_match(part, match, verify);
    for (const NamedRule& named : names) {
      // Every line of the rule says how many there are to be; a rule without any tensor has a line all the same.
      auto lines = lines_of(part, *named.rule);
      if (lines.empty()) lines = {&new_line(part, *named.rule, "none")};
      for (CheckedRule* line : lines) ++line->expected;
    }
    for (const std::string& problem : findings.problems) out_.problems.push_back(problem);
    for (const NamedRule& missing : findings.missing) {
      out_.problems.push_back(
          fmt::format("rule {}: tensor {} is missing", short_name(*missing.rule, container()), missing.name));
    }
  }
  void add_unused(const Checkpoint::Located& at, std::string_view family) {
    ++out_.tensors;
    out_.denied += is_denied(at.tensor->name);
    ++out_.unused[std::string(family)];
  }
  void add_unmatched(const Checkpoint::Located& at) {
    ++out_.tensors;
    out_.unmatched.push_back(at.tensor->name);
    out_.problems.push_back(
        fmt::format("{}: tensor {} matches no rule", at.file->path().string(), printable(at.tensor->name)));
  }
  HeaderCheck take() { return std::move(out_); }

 private:
  Container container() const { return plan_.shape().container; }

  std::vector<CheckedRule*> lines_of(const std::string& part, const Rule& rule) {
    const std::string name = short_name(rule, container());
    std::vector<CheckedRule*> lines;
    for (CheckedRule& line : out_.rules) {
      if (line.part == part && line.name == name) lines.push_back(&line);
    }
    return lines;
  }

  CheckedRule& new_line(const std::string& part, const Rule& rule, std::string_view format) {
    CheckedRule line;
    line.part = part;
    line.name = short_name(rule, container());
    line.format = format;
    line.op = rule.op;
    if (rule.axis) {
      line.stock_size = plan_.real_size(*rule.axis);
      line.padded_size = axis_size(plan_.shape(), padded_, *rule.axis);
      line.at_run_time = rule.axis == Axis::kVocab;
    }
    return out_.rules.emplace_back(std::move(line));
  }

  CheckedRule& line_for(const std::string& part, const Match& match) {
    const std::string format = match.format != nullptr ? std::string(match.format->name) : match.at.tensor->type_name;
    for (CheckedRule* line : lines_of(part, *match.rule)) {
      if (line->format == format) return *line;
    }
    return new_line(part, *match.rule, format);
  }

  // The rule's matrix or vector with the padded counts.
  std::vector<int64_t> padded_shape(const Rule& rule) const {
    std::vector<int64_t> shape = rule.shape;
    if (!rule.axis || rule.axis == Axis::kVocab) return shape;
    shape[rule.op == Operation::kColumns ? 1 : 0] = axis_size(plan_.shape(), padded_, *rule.axis);
    return shape;
  }

  void count(CheckedRule& line, const Checkpoint::Located& at, bool grows) {
    ++out_.tensors, ++line.tensors;
    const bool denied = is_denied(at.tensor->name);
    out_.denied += denied;
    if (!grows) return;
    ++out_.padded, ++line.padded;
    if (denied) out_.problems.push_back(fmt::format("tensor {} would be padded, and must not be", at.tensor->name));
  }

  void add_match(const std::string& part, const Match& match, const ShardPlan* verify) {
    const Rule& rule = *match.rule;
    CheckedRule& line = line_for(part, match);
    ++line.found;
    const std::vector<int64_t> wide = padded_shape(rule);
    try {
      if (match.format == nullptr) {
        count(line, match.at, wide != rule.shape);
      } else {
        for (const auto& [stored, at] :
             {std::pair(&match.format->codes, &match.at), std::pair(&match.format->scales, &match.scales)}) {
          const auto stock = stored_shape(*stored, rule.shape[0], rule.shape[1], at->tensor->name);
          StoredPart padded = *stored;
          padded.partial = true;  // dummies may end within a block: no rank needs to hold them
          count(line, *at, stored_shape(padded, wide[0], wide[1], at->tensor->name) != stock);
        }
      }
      if (verify == nullptr || line.verified || !rule.axis || line.at_run_time) return;
      check_padding(match, *verify);
      line.verified = true;
    } catch (const Error& error) {
      out_.problems.emplace_back(error.what());
    }
  }

  const ShardPlan& plan_;
  Counts padded_;
  HeaderCheck out_;
};

}  // namespace

HeaderCheck check_headers(const Checkpoint& checkpoint, const ShardPlan& plan, bool tensors) {
  Checker checker(plan, plan.padded());
  std::optional<ShardPlan> whole;
  if (tensors) {
    PlanOptions options = plan.options();
    options.ranks = 1;
    options.dummies = Dummies::kHeld;
    whole.emplace(plan.shape(), options);
  }
  const ShardPlan* verify = whole ? &*whole : nullptr;
  const std::vector<NamedRule> names = named_rules(plan);
  const std::vector<Checkpoint::Located> all = checkpoint.tensors();
  const Findings model = find_tensors(all, names, plan);
  checker.add("", names, model, verify);

  const std::vector<MtpTensor> head = mtp_tensors(plan);
  std::vector<NamedRule> head_names;
  for (const MtpTensor& tensor : head) head_names.push_back({tensor.name, &tensor.rule, tensor.layer});
  const Findings mtp = find_tensors(model.unmatched, head_names, plan);
  if (!mtp.tensors.empty() || !mtp.problems.empty()) checker.add("mtp", head_names, mtp, verify);
  for (const Checkpoint::Located& at : mtp.unmatched) {
    const std::string_view family = unused_family(at.tensor->name, plan.shape());
    if (family.empty() || family == "MTP") {
      checker.add_unmatched(at);
    } else {
      checker.add_unused(at, family);
    }
  }
  return checker.take();
}

HeaderCheck check_drafter_headers(const Checkpoint& checkpoint, const ShardPlan& plan, const Counts& padded) {
  Checker checker(plan, padded);
  std::vector<NamedRule> names;
  for (const Rule& rule : plan.rules()) {
    if (!rule.axis || rule.scope == Scope::kModel) continue;
    for (int layer = 0; layer < plan.shape().layers; ++layer) {
      names.push_back({fmt::format("layers.{}.{}", layer, rule.suffix), &rule, layer});
    }
  }
  const Findings findings = find_tensors(checkpoint.tensors(), names, plan);
  checker.add("drafter", names, findings, nullptr);
  for (const Checkpoint::Located& at : findings.unmatched) {
    const std::string_view family = drafter_family(at.tensor->name);
    if (family.empty()) {
      checker.add_unmatched(at);
    } else {
      checker.add_unused(at, family);
    }
  }
  return checker.take();
}

}  // namespace coprime
