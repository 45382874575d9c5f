#include "checkpoint/match.h"

#include <charconv>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "json/json.h"

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

// A tensor of a GGUF file's blocks behind the decoder's layers.
bool is_mtp_block(std::string_view name, const ModelShape& shape) {
  if (shape.container != Container::kGguf || !name.starts_with("blk.")) return false;
  int layer = -1;
  const std::string_view number = name.substr(4);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
  return error == std::errc() && end != number.data() + number.size() && *end == '.' && layer >= shape.layers &&
         layer < shape.layers + shape.mtp_layers;
}

// The family of a tensor that the decoders know and do not use; empty for any other.
std::string_view unused_family(std::string_view name, const ModelShape& shape) {
  if (shape.container == Container::kGguf && name == "rope_freqs.weight") return "rotary tables";
  if (is_mtp_block(name, shape)) return "MTP";
  if (name.starts_with("model.visual.") || name.starts_with("visual.")) return "vision";
  if (name.starts_with("mtp.")) return "MTP";
  if (name.ends_with("rotary_emb.inv_freq")) return "rotary tables";
  if (shape.tied_head && name == "lm_head.weight") return "tied lm_head";
  return {};
}

// Where a shape comes from.
std::string_view source_of(const ShardPlan& plan) {
  return plan.shape().container == Container::kGguf ? "the file's metadata" : "config.json";
}

void check_tensor(const Checkpoint::Located& at, const Rule& rule, const ShardPlan& plan) {
  const std::string where = fmt::format("{}: tensor {}", at.file->path().string(), at.tensor->name);
  const bool matrix = rule.shape.size() > 1;
  if (!is_float(at.tensor->type) && !(matrix && is_block(at.tensor->type))) {
    fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: BF16, F16, F32{}", where,
         at.tensor->type_name,
         matrix && plan.shape().container == Container::kGguf ? ", Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, MXFP4"
                                                              : "");
  }
  if (at.tensor->shape != rule.shape) {
    fail(ErrorKind::kModel, "{} has the shape [{}]; {} makes it [{}]; they are not of one model", where,
         fmt::join(at.tensor->shape, ", "), source_of(plan), fmt::join(rule.shape, ", "));
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
  if (rule.id == TensorId::kLinearNorm && plan.shape().container == Container::kSafetensors)
    line.name = "linear_attn.norm";
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
      fail(ErrorKind::kModel, "rule {}: found {} tensors, {} predicts {}; tensor {} is missing; fetch the model again",
           line.name, line.found, source_of(plan), line.rule->expected, name);
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
      check_tensor(at, *found->second.rule, plan);
      found->second.found = true;
      ++matches.tally.lines[line_of.at(found->second.rule)].found;
      matches.tensors.push_back({at, found->second.rule, found->second.layer});
    } else if (const auto family = unused_family(at.tensor->name, plan.shape()); !family.empty()) {
      matches.tally.unused.push_back(at.tensor->name);
      ++matches.tally.unused_families[std::string(family)];
    } else {
      fail(ErrorKind::kModel, "{}: tensor {} has no place in a {} of {} layers; {} and it are not of one model",
           at.file->path().string(), printable(at.tensor->name), plan.shape().architecture_name, plan.shape().layers,
           source_of(plan));
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
  text += "unused:";
  for (const auto& [family, count] : unused_families) text += fmt::format(" {} {}x", family, count);
  return text + "\n";
}

}  // namespace coprime
