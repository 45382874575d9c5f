// The shape of a model in a GGUF file, from its metadata. Internal to geometry.
#pragma once

#include "geometry/model_shape.h"
#include "gguf/gguf_file.h"

namespace coprime {

// Error(kModel) for an architecture that the decoders do not compute, a key that asks for other mathematics, and one
// that is missing or out of range: file, key, what was found and what is supported.
ModelShape gguf_model_shape(const GgufFile& file);

}  // namespace coprime
