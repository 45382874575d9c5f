// Parts of the reading of config.json: what is refused, and the rotary embedding. Internal to geometry.
#pragma once

#include "geometry/model_shape.h"
#include "json/json.h"

namespace coprime {

// Far above any model; low enough that no product of two of them overflows.
constexpr int64_t kMaxLayers = 4096, kMaxHeads = 1 << 14, kMaxWidth = 1 << 20, kMaxVocab = 1 << 24,
                  kMaxPositions = 1 << 30;

// Error(kModel) for every key that asks for mathematics that the decoders of `architecture` do not compute. `text`
// holds the text model's keys (the top of the file, or text_config within it).
void refuse_unsupported(Architecture architecture, const JsonObject& root, const JsonObject& text);

// The widest unit that the formats of the layers' MLPs ask for; names are those of `shape`.
int64_t parse_mlp_unit(const ModelShape& shape);

// rope_parameters (transformers 5), or rope_theta, rope_scaling and partial_rotary_factor (before); the nested key
// wins.
Rope parse_rope(Architecture architecture, const JsonObject& text, int head_dim);

}  // namespace coprime
