// The formats of a safetensors checkpoint's matrices: what config.json's quantization_config says of each module, and
// the tensors that a matrix of a format consists of. Refuses by name what is not computed with: integer schemes (GPTQ,
// AWQ, bitsandbytes), NVFP4, scales for a whole tensor, and any other word that would change the numbers.
//
// A config says what the quantised tensors of a module look like. A module whose tensor is BF16, F16 or F32 all the
// same is taken as it is.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "geometry/module_pattern.h"
#include "json/json.h"
#include "tensor/dtype.h"

namespace coprime {

enum class WeightFormat : uint8_t {
  kMxfp4,       // codes of e2m1, an e8m0 scale for 32 columns of a row
  kFp8Block,    // codes of e4m3, a scale for 128 rows by 128 columns
  kFp8Channel,  // codes of e4m3, a scale for a row
};

constexpr int64_t kMxBlock = 32, kFp8BlockSize = 128;

// One of the two tensors that stand for a matrix [rows, columns]. An element of it stands for so many rows by so many
// columns of the matrix; 0 columns: for whole rows, and its shape is [rows] or [rows, 1].
struct StoredPart {
  std::string_view suffix;  // in place of the matrix's ".weight"
  DType types[2];           // that it may have
  int64_t rows = 1, columns = 1;
  bool partial = false;  // the last element of an axis may stand for fewer
  int64_t inner = 0;     // gpt-oss: the columns lie in [columns / inner, inner]; 0: they do not
};

// How a format is stored: the names differ between quantisers, the numbers do not.
struct StoredFormat {
  std::string_view name;  // for messages: "MXFP4 (Quark)"
  WeightFormat format;
  StoredPart codes, scales;
};

// Every form that is read.
std::span<const StoredFormat> stored_formats();
const StoredFormat& quark_mxfp4();
const StoredFormat& fp8_block();  // DeepSeek's and Qwen's: weight_scale_inv
const StoredFormat& fp8_channel();

// Elements along an axis of `size` of the matrix, `each` to one. Nothing where it does not come out whole.
std::optional<int64_t> stored_size(int64_t size, int64_t each, bool partial);

// The shape of a part of a matrix [rows, columns]. Error(kModel) where it does not come out whole; `tensor` names it.
std::vector<int64_t> stored_shape(const StoredPart& part, int64_t rows, int64_t columns, std::string_view tensor);

// Units that a rank's share of the columns of a down projection should have: 64, 128, 16; 16 where there is no format.
int64_t mlp_unit(const StoredFormat* format);

class Quantization {
 public:
  Quantization() = default;  // of a checkpoint that is not quantised

  // The quantization_config at the top of config.json, or in text_config. Error(kModel) names the key of a scheme that
  // is not supported.
  static Quantization parse(const JsonObject& config, const JsonObject& text);

  // How a module's matrix is stored ("model.layers.0.mlp.down_proj"); nullptr: as it is.
  const StoredFormat* format_of(std::string_view module) const;

  bool empty() const { return rules_.empty(); }
  std::string_view text() const { return text_; }  // the JSON, of which the plan's hash is made

 private:
  // The first rule that matches decides.
  struct Rule {
    std::optional<ModulePattern> pattern;  // none: every module
    const StoredFormat* format;            // nullptr: left as it is
  };
  friend class QuantizationReader;

  std::vector<Rule> rules_;
  std::string text_;
};

}  // namespace coprime
