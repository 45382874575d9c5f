// Which tensors a checkpoint of a shape and a format consists of, as the field names and stores them, and with what
// random contents a forward pass through them stays sane: matrices with a standard deviation of 0.02, norms near one
// (or near zero, where the model adds one), slow decays.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "geometry/named_shapes.h"
#include "tools/random_fill.h"

namespace coprime {

enum class SynthFormat : uint8_t {
  kBf16,
  kF32,
  kQuarkMxfp4,  // matrices of the layers in MXFP4, of the MTP layers in FP8 per channel
  kFp8Block,    // matrices of the layers and of the MTP layers in FP8 with scales of 128 x 128
  kFp8Channel,  // the same with a scale a row
};

struct SynthTensor {
  std::string name;
  std::string_view type;  // as safetensors writes it: "BF16"
  std::vector<int64_t> shape;
  RandomContent content;

  int64_t count() const;  // of elements
  int64_t bytes() const { return count() * content_bytes(content.kind); }
};

// A DFlash2 drafter's counts and widths.
struct DrafterShape {
  int64_t hidden = 0, intermediate = 0, vocab = 0, q_heads = 0, kv_heads = 0, head_dim = 0;
  int64_t conv_taps = 0, conv_group = 0, selector_rank = 0, target_layers = 0;
  int layers = 0;
};

struct SynthOptions {
  SynthFormat format = SynthFormat::kBf16;
  bool bf16_mtp = false;  // the MTP layers' matrices stay BF16 in a quantised format
};

// All tensors, layer by layer. Error(kUsage) where a matrix has no whole blocks of the format.
std::vector<SynthTensor> synth_tensors(const ModelShape& shape, const VisionShape& vision, const SynthOptions& options);

// Of a DFlash2 drafter. Error(kUsage) for a format other than BF16, F32 and FP8 in blocks.
std::vector<SynthTensor> synth_tensors(const DrafterShape& drafter, SynthFormat format);

}  // namespace coprime
