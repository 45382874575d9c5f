// The shapes of models that people ask about, by name: complete for those that coprime runs, and the counts and widths
// that planning needs for the others.
//
// A row is `kChecked` where its numbers were compared with a public copy of the checkpoint's config.json (or the
// defaults of the public class that stands for it), `kRecalled` where one of them was not.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "geometry/model_shape.h"

namespace coprime {

enum class Provenance : uint8_t { kChecked, kRecalled };

// Routed experts of an MLP; zero where it is dense.
struct ExpertShape {
  int count = 0, per_token = 0;
  int64_t width = 0, shared_width = 0;  // of one routed expert; of all shared ones
  int dense_layers = 0;                 // the first ones, with a dense MLP of `intermediate`
};

// Attention with latent keys and values (MLA): every rank keeps the whole latent; zero where heads have their own.
struct LatentShape {
  int q_rank = 0, kv_rank = 0, rope_dim = 0;  // a token keeps kv_rank + rope_dim elements a layer
};

// The vision tower of a multimodal checkpoint, which coprime does not run; zero: none.
struct VisionShape {
  int layers = 0;
  int64_t hidden = 0, intermediate = 0, positions = 0, patch_elements = 0, merged_patches = 0;
};

// What a DFlash2 drafter has beyond a decoder's layers; zero: the model is none.
struct DraftShape {
  int block = 0, conv_taps = 0, conv_group = 0, selector_rank = 0, selector_top_k = 0, window = 0, mask_token = 0;
  std::array<int, 5> target_layers{};  // whose outputs it reads
};

struct NamedShape {
  std::string_view name;                     // "llama-3.1-8b"
  std::string_view checkpoint;               // "meta-llama/Llama-3.1-8B"
  std::optional<Architecture> architecture;  // none: coprime plans it, and does not run it
  Provenance provenance = Provenance::kChecked;
  int64_t hidden = 0, intermediate = 0;  // intermediate: of a dense MLP; 0: every layer has experts
  int layers = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t vocab = 0, max_positions = 0;
  bool tied_head = false;
  double rms_eps = 1e-6, rope_theta = 1e6;
  double llama3_factor = 0;         // of Llama-3.1's scaling; 0: none
  int full_attention_interval = 1;  // every n-th layer has full attention, the others linear attention
  int mtp_layers = 0;
  LinearAttentionShape linear;
  ExpertShape experts;
  LatentShape latent;
  VisionShape vision;
  DraftShape draft;
};

std::span<const NamedShape> named_shapes();

// The shape of this name (any case); null if there is none.
const NamedShape* find_named_shape(std::string_view name);

// As find_named_shape. Error(kUsage) names all there are.
const NamedShape& named_shape(std::string_view name);

// The config.json of a shape with an architecture, or of a drafter, as its checkpoint has it but for keys that change
// nothing. Error(kUsage) for any other.
std::string config_json(const NamedShape& shape);

}  // namespace coprime
