#include "checkpoint/match.h"

#include <map>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "geometry/json.h"

namespace coprime {
namespace {

struct Expected {
  const Rule* rule;
  int layer;
  bool found = false;
};

std::unordered_map<std::string, Expected> expected_tensors(const ShardPlan& plan) {
  std::unordered_map<std::string, Expected> expected;
  for (const Rule& rule : plan.rules()) {
    for (int layer = -1; layer < plan.shape().layers; ++layer) {
      if (plan.applies(rule, layer)) expected.emplace(plan.tensor_name(rule, layer), Expected{&rule, layer});
    }
  }
  return expected;
}

// The family of a tensor that the decoders know and do not use; empty for any other.
std::string_view unused_family(std::string_view name, bool tied_head) {
  if (name.starts_with("model.visual.") || name.starts_with("visual.")) return "vision";
  if (name.starts_with("mtp.")) return "MTP";
  if (name.ends_with("rotary_emb.inv_freq")) return "rotary tables";
  if (tied_head && name == "lm_head.weight") return "tied lm_head";
  return {};
}

void check_tensor(const Checkpoint::Located& at, const Rule& rule) {
  const std::string where = fmt::format("{}: tensor {}", at.file->path().string(), at.tensor->name);
  if (!is_float(at.tensor->type)) {
    fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: BF16, F16, F32", where, at.tensor->type_name);
  }
  if (at.tensor->shape != rule.shape) {
    fail(ErrorKind::kModel, "{} has the shape [{}]; config.json makes it [{}]; they are not of one model", where,
         fmt::join(at.tensor->shape, ", "), fmt::join(rule.shape, ", "));
  }
}

// "model.layers.self_attn.q_proj.bias" -> "q_proj.bias", "...norm.weight" -> "norm".
std::string short_name(std::string_view suffix) {
  if (suffix.ends_with(".weight")) suffix.remove_suffix(7);
  const bool bias = suffix.ends_with(".bias");
  const size_t dot = suffix.rfind('.', bias ? suffix.size() - 6 : suffix.npos);
  return std::string(dot == suffix.npos ? suffix : suffix.substr(dot + 1));
}

Tally::Line make_line(const ShardPlan& plan, const Rule& rule) {
  Tally::Line line{&rule, short_name(rule.suffix)};
  if (rule.id == TensorId::kLinearNorm) line.name = "linear_attn.norm";
  if (rule.axis) {
    line.stock_size = plan.real_size(*rule.axis);
    line.padded_size = plan.padded_size(*rule.axis);
  } else {
    line.stock_size = std::accumulate(rule.shape.begin(), rule.shape.end(), int64_t{1}, std::multiplies<>());
    line.padded_size = line.stock_size;
  }
  line.padded = line.padded_size != line.stock_size;
  return line;
}

void check_counts(const ShardPlan& plan, const std::unordered_map<std::string, Expected>& expected,
                  const Tally& tally) {
  for (const Tally::Line& line : tally.lines) {
    if (line.found == line.rule->expected) continue;
    for (int layer = -1; layer < plan.shape().layers; ++layer) {
      if (!plan.applies(*line.rule, layer)) continue;
      const std::string name = plan.tensor_name(*line.rule, layer);
      if (expected.at(name).found) continue;
      fail(ErrorKind::kModel,
           "rule {}: found {} tensors, config.json predicts {}; tensor {} is missing; fetch the model again", line.name,
           line.found, line.rule->expected, name);
    }
  }
}

}  // namespace

Matches match_tensors(const Checkpoint& checkpoint, const ShardPlan& plan) {
  Matches matches;
  std::unordered_map<const Rule*, size_t> line_of;
  for (const Rule& rule : plan.rules()) {
    line_of[&rule] = matches.tally.lines.size();
    matches.tally.lines.push_back(make_line(plan, rule));
  }
  auto expected = expected_tensors(plan);
  for (const Checkpoint::Located& at : checkpoint.tensors()) {
    const auto found = expected.find(at.tensor->name);
    if (found != expected.end()) {
      check_tensor(at, *found->second.rule);
      found->second.found = true;
      ++matches.tally.lines[line_of.at(found->second.rule)].found;
      matches.tensors.push_back({at, found->second.rule, found->second.layer});
    } else if (!unused_family(at.tensor->name, plan.shape().tied_head).empty()) {
      matches.tally.unused.push_back(at.tensor->name);
    } else {
      fail(ErrorKind::kModel,
           "{}: tensor {} has no place in a {} of {} layers; config.json and it are not of one model",
           at.file->path().string(), printable(at.tensor->name), plan.shape().architecture_name, plan.shape().layers);
    }
  }
  check_counts(plan, expected, matches.tally);
  return matches;
}

Tally check_checkpoint(const Checkpoint& checkpoint, const ShardPlan& plan) {
  return match_tensors(checkpoint, plan).tally;
}

std::string Tally::text() const {
  std::string text;
  for (const Line& line : lines) {
    text += line.padded ? fmt::format("{} {}x [{} -> {}]\n", line.name, line.found, line.stock_size, line.padded_size)
                        : fmt::format("{} {}x [{}]\n", line.name, line.found, line.stock_size);
  }
  if (unused.empty()) return text;
  std::map<std::string_view, int> families;
  for (const std::string& name : unused) ++families[unused_family(name, true)];
  text += "unused:";
  for (const auto& [family, count] : families) text += fmt::format(" {} {}x", family, count);
  return text + "\n";
}

}  // namespace coprime
