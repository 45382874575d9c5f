#include "checkpoint/match.h"

#include <charconv>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "json/json.h"

namespace coprime {
namespace {

// Embeddings are no linear layers, and a convolution's three axes no matrix.
bool can_be_quantised(const Rule& rule) { return rule.shape.size() == 2 && rule.id != TensorId::kEmbedding; }

// "model.layers.0.mlp.up_proj.weight" without ".weight".
std::string module_of(std::string_view name) {
  if (name.ends_with(".weight")) name.remove_suffix(7);
  return std::string(name);
}

// A matrix or vector that the rules predict, and what of it has been found.
struct Expected {
  NamedRule named;
  const StoredFormat* format = nullptr;  // that the config gives it
  Checkpoint::Located values = {}, codes = {}, scales = {};
};

enum class Part : uint8_t { kValues, kCodes, kScales };

// What a tensor's name stands for.
struct Role {
  size_t expected;
  Part part;
};

class Expectations {
 public:
  Expectations(std::span<const NamedRule> names, const ShardPlan& plan) {
    for (const NamedRule& named : names) add(named, plan.shape().quantization);
  }

  std::vector<Expected>& all() { return all_; }
  const Role* find(const std::string& name) const {
    const auto found = roles_.find(name);
    return found == roles_.end() ? nullptr : &found->second;
  }

 private:
  void add(const NamedRule& named, const Quantization& quantization) {
    Expected expected{named};
    const size_t at = all_.size();
    roles_.emplace(named.name, Role{at, Part::kValues});
    if (can_be_quantised(*named.rule) && !quantization.empty()) {
      const std::string module = module_of(named.name);
      expected.format = quantization.format_of(module);
      if (expected.format != nullptr) {
        roles_.emplace(module + std::string(expected.format->codes.suffix), Role{at, Part::kCodes});
        roles_.emplace(module + std::string(expected.format->scales.suffix), Role{at, Part::kScales});
      }
    }
    all_.push_back(std::move(expected));
  }

  std::vector<Expected> all_;
  std::unordered_map<std::string, Role> roles_;
};

// A tensor of a GGUF file's blocks behind the decoder's layers.
bool is_mtp_block(std::string_view name, const ModelShape& shape) {
  if (shape.container != Container::kGguf || !name.starts_with("blk.")) return false;
  int layer = -1;
  const std::string_view number = name.substr(4);
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), layer);
  return error == std::errc() && end != number.data() + number.size() && *end == '.' && layer >= shape.layers &&
         layer < shape.layers + shape.mtp_layers;
}

// Where a shape comes from.
std::string_view source_of(const ShardPlan& plan) {
  return plan.shape().container == Container::kGguf ? "the file's metadata" : "config.json";
}

std::string where_of(const Checkpoint::Located& at) {
  return fmt::format("{}: tensor {}", at.file->path().string(), printable(at.tensor->name));
}

void check_shape(const Checkpoint::Located& at, const std::vector<int64_t>& expected, const ShardPlan& plan) {
  if (at.tensor->shape == expected) return;
  fail(ErrorKind::kModel, "{} has the shape [{}]; {} makes it [{}]; they are not of one model", where_of(at),
       fmt::join(at.tensor->shape, ", "), source_of(plan), fmt::join(expected, ", "));
}

// A tensor that is the rule's matrix or vector itself.
void check_values(const Checkpoint::Located& at, const Rule& rule, const ShardPlan& plan) {
  const bool matrix = rule.shape.size() > 1, gguf = plan.shape().container == Container::kGguf;
  if (!is_float(at.tensor->type) && !(matrix && is_block(at.tensor->type))) {
    const bool packed = at.tensor->type == DType::kU8 || at.tensor->type == DType::kF8E4M3;
    if (matrix && !gguf && packed) {
      fail(ErrorKind::kModel,
           "{} is {}, and config.json gives its module no format; expected a quantization_config "
           "that does, or BF16, F16 or F32",
           where_of(at), at.tensor->type_name);
    }
    fail(ErrorKind::kModel, "{} is {}, which is not supported; supported: BF16, F16, F32{}", where_of(at),
         at.tensor->type_name, matrix && gguf ? ", Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, MXFP4" : "");
  }
  check_shape(at, rule.shape, plan);
}

// One of the two tensors of a matrix in a format.
void check_part(const Checkpoint::Located& at, const Rule& rule, const StoredFormat& format, const StoredPart& part,
                const ShardPlan& plan) {
  if (at.tensor->type != part.types[0] && at.tensor->type != part.types[1]) {
    fail(ErrorKind::kModel, "{} is {}; expected {}, as {} has it", where_of(at), at.tensor->type_name,
         part.types[0] == part.types[1] ? std::string(dtype_name(part.types[0]))
                                        : fmt::format("{} or {}", dtype_name(part.types[0]), dtype_name(part.types[1])),
         format.name);
  }
  std::vector<int64_t> expected = stored_shape(part, rule.shape[0], rule.shape[1], where_of(at));
  if (part.columns == 0 && at.tensor->shape.size() == 2) expected.push_back(1);
  check_shape(at, expected, plan);
}

// Of one matrix or vector: the tensor itself, or both parts of its format.
Match check_found(const Expected& expected, const ShardPlan& plan) {
  const Rule& rule = *expected.named.rule;
  const Checkpoint::Located &values = expected.values, &codes = expected.codes, &scales = expected.scales;
  const bool plain = values.tensor != nullptr;
  if (plain && (codes.tensor != nullptr || scales.tensor != nullptr)) {
    fail(ErrorKind::kModel, "{} is {}, and there is {}, too; expected one of them", where_of(values),
         values.tensor->type_name, (codes.tensor != nullptr ? codes : scales).tensor->name);
  }
  if (plain) {
    check_values(values, rule, plan);
    return {values, &rule, expected.named.layer};
  }
  const StoredFormat& format = *expected.format;
  if (codes.tensor == nullptr || scales.tensor == nullptr) {
    const std::string_view suffix = (codes.tensor == nullptr ? format.codes : format.scales).suffix;
    fail(ErrorKind::kModel, "{} is there without {}{}; {} has both; fetch the model again",
         where_of(codes.tensor == nullptr ? scales : codes), module_of(expected.named.name), suffix, format.name);
  }
  check_part(codes, rule, format, format.codes, plan);
  check_part(scales, rule, format, format.scales, plan);
  return {codes, &rule, expected.named.layer, &format, scales};
}

// "model.layers.self_attn.q_proj.bias" -> "q_proj.bias", "...norm.weight" -> "norm".
std::string short_name(std::string_view suffix) {
  if (suffix.ends_with(".weight")) suffix.remove_suffix(7);
  const bool bias = suffix.ends_with(".bias");
  const size_t dot = suffix.rfind('.', bias ? suffix.size() - 6 : suffix.npos);
  return std::string(dot == suffix.npos ? suffix : suffix.substr(dot + 1));
}

bool is_found(const Expected& e) {
  return e.values.tensor != nullptr || e.codes.tensor != nullptr || e.scales.tensor != nullptr;
}

// Where a tensor of that name belongs. Codes may have the matrix's own name: a float tensor is the matrix all the same.
Checkpoint::Located& place_of(Expected& expected, Part part, const Checkpoint::Located& at) {
  if (part == Part::kScales) return expected.scales;
  const bool own_name = expected.format != nullptr && expected.format->codes.suffix == ".weight";
  if (part == Part::kValues && own_name && !is_float(at.tensor->type)) return expected.codes;
  return part == Part::kValues ? expected.values : expected.codes;
}

Tally::Line make_line(const ShardPlan& plan, const Rule& rule) {
  Tally::Line line{&rule, short_name(rule, plan.shape().container)};
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

}  // namespace

std::vector<NamedRule> named_rules(const ShardPlan& plan) {
  std::vector<NamedRule> names;
  for (const Rule& rule : plan.rules()) {
    for (int layer = -1; layer < plan.shape().layers; ++layer) {
      if (plan.applies(rule, layer)) names.push_back({plan.tensor_name(rule, layer), &rule, layer});
    }
  }
  return names;
}

std::string_view unused_family(std::string_view name, const ModelShape& shape) {
  if (shape.container == Container::kGguf && name == "rope_freqs.weight") return "rotary tables";
  if (is_mtp_block(name, shape)) return "MTP";
  if (name.starts_with("model.visual.") || name.starts_with("visual.")) return "vision";
  if (name.starts_with("mtp.")) return "MTP";
  if (name.ends_with("rotary_emb.inv_freq")) return "rotary tables";
  if (shape.tied_head && name == "lm_head.weight") return "tied lm_head";
  // Of activations and caches that others quantise; here they are as they are.
  if (!shape.quantization.empty() &&
      (name.ends_with(".input_scale") || name.ends_with("proj.k_scale") || name.ends_with("proj.v_scale"))) {
    return "activation scales";
  }
  return {};
}

std::string short_name(const Rule& rule, Container container) {
  if (rule.id == TensorId::kLinearNorm && container == Container::kSafetensors) return "linear_attn.norm";
  return short_name(rule.suffix);
}

Findings find_tensors(std::span<const Checkpoint::Located> tensors, std::span<const NamedRule> names,
                      const ShardPlan& plan) {
  Findings findings;
  Expectations expectations(names, plan);
  std::vector<size_t> order;  // of the matrices and vectors, as their first tensors come
  for (const Checkpoint::Located& at : tensors) {
    const Role* role = expectations.find(at.tensor->name);
    if (role == nullptr) {
      findings.unmatched.push_back(at);
      continue;
    }
    Expected& expected = expectations.all()[role->expected];
    if (!is_found(expected)) order.push_back(role->expected);
    place_of(expected, role->part, at) = at;
  }
  for (const size_t at : order) {
    try {
      findings.tensors.push_back(check_found(expectations.all()[at], plan));
    } catch (const Error& error) {
      findings.problems.emplace_back(error.what());
    }
  }
  for (const Expected& expected : expectations.all()) {
    if (!is_found(expected)) findings.missing.push_back(expected.named);
  }
  return findings;
}

Matches match_tensors(const Checkpoint& checkpoint, const ShardPlan& plan) {
  Matches matches;
  Findings findings = find_tensors(checkpoint.tensors(), named_rules(plan), plan);
  for (const Checkpoint::Located& at : findings.unmatched) {
    const auto family = unused_family(at.tensor->name, plan.shape());
    if (family.empty()) {
      fail(ErrorKind::kModel, "{}: tensor {} has no place in a {} of {} layers; {} and it are not of one model",
           at.file->path().string(), printable(at.tensor->name), plan.shape().architecture_name, plan.shape().layers,
           source_of(plan));
    }
    matches.tally.unused.push_back(at.tensor->name);
    ++matches.tally.unused_families[std::string(family)];
  }
  if (!findings.problems.empty()) fail(ErrorKind::kModel, "{}", findings.problems[0]);
  std::unordered_map<const Rule*, int> found;
  for (const Match& match : findings.tensors) ++found[match.rule];
  for (const Rule& rule : plan.rules()) {
    matches.tally.lines.push_back(make_line(plan, rule));
    matches.tally.lines.back().found = found[&rule];
  }
  if (!findings.missing.empty()) {
    const NamedRule& missing = findings.missing[0];
    fail(ErrorKind::kModel, "rule {}: found {} tensors, {} predicts {}; tensor {} is missing; fetch the model again",
         short_name(*missing.rule, plan.shape().container), found[missing.rule], source_of(plan),
         missing.rule->expected, missing.name);
  }
  matches.tensors = std::move(findings.tensors);
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
