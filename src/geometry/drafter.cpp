#include "geometry/drafter.h"

#include "base/error.h"
#include "geometry/config_parts.h"

namespace coprime {
namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;

void check_architecture(const JsonObject& config) {
  const auto names = config.array("architectures");
  std::string_view name;
  const bool known = names && names->size() == 1 && names->at(0).get(name) == simdjson::SUCCESS &&
                     (name == "DFlashDraftModel" || name == "DFlash2DraftModel");
  if (known) return;
  const auto found = config.find("architectures");
  fail(ErrorKind::kModel,
       "{} is {}, which is no drafter that is supported; supported: DFlashDraftModel, DFlash2DraftModel",
       config.path("architectures"), found ? describe(*found) : "missing");
}

}  // namespace

ModelShape read_drafter_shape(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const JsonDocument document(read_text_file(path, kMaxConfigBytes), path.string());
  const JsonObject config = document.root();
  check_architecture(config);
  ModelShape shape;
  shape.architecture = Architecture::kQwen3;
  shape.architecture_name = "DFlash drafter";
  shape.hidden = config.required_integer("hidden_size", 2, kMaxWidth);
  shape.intermediate = config.required_integer("intermediate_size", 1, kMaxWidth);
  shape.vocab = config.required_integer("vocab_size", 1, kMaxVocab);
  shape.layers = static_cast<int>(config.required_integer("num_hidden_layers", 1, kMaxLayers));
  shape.q_heads = static_cast<int>(config.required_integer("num_attention_heads", 1, kMaxHeads));
  shape.kv_heads = static_cast<int>(config.required_integer("num_key_value_heads", 1, kMaxHeads));
  shape.head_dim = static_cast<int>(config.required_integer("head_dim", 2, kMaxHeads));
  if (shape.q_heads % shape.kv_heads != 0 || int64_t{shape.q_heads} * shape.head_dim > kMaxWidth) {
    fail(ErrorKind::kModel, "{} is {} with {} query heads of {}; expected a divisor of them, and {} elements at most",
         config.path("num_key_value_heads"), shape.kv_heads, shape.q_heads, shape.head_dim, kMaxWidth);
  }
  shape.qk_norm = true;
  shape.layer_kinds.assign(static_cast<size_t>(shape.layers), LayerKind::kFullAttention);
  shape.quantization = Quantization::parse(config, config);
  shape.mlp_unit = parse_mlp_unit(shape);
  return shape;
}

Counts pad_drafter(const ModelShape& drafter, int64_t target_kv_elements, int ranks, int64_t mlp_unit) {
  Counts counts = ShardPlan(drafter, {.ranks = ranks, .mlp_unit = mlp_unit}).padded();
  const int64_t kv_heads = target_kv_elements / drafter.head_dim;
  if (target_kv_elements % drafter.head_dim != 0 || kv_heads % ranks != 0 || kv_heads < drafter.kv_heads) {
    fail(ErrorKind::kModel,
         "the target keeps {} KV elements a token; no count of KV heads of {} that is at least {} and a multiple of {} "
         "ranks "
         "has as many; use the drafter unpadded, or another",
         target_kv_elements, drafter.head_dim, drafter.kv_heads, ranks);
  }
  counts.kv_heads = static_cast<int>(kv_heads);
  counts.q_heads = drafter.gqa() * counts.kv_heads;
  return counts;
}

}  // namespace coprime
