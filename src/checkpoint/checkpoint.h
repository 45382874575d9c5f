// A model's tensors, in one safetensors file, many, or a GGUF file, and the reading of one rank's shard: pad and shard
// while reading.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "geometry/shard_plan.h"
#include "gguf/gguf_file.h"
#include "tensor/weight.h"
#include "tensor/weight_sink.h"

namespace coprime {

class Checkpoint {
 public:
  // A GGUF file; or, in a folder, model.safetensors, or the files that model.safetensors.index.json names (which must
  // lie in the folder). Error(kModel) for a missing file, a name that leads elsewhere, a tensor that the index names
  // and the file lacks, or one that stands in two files.
  static Checkpoint open(const std::filesystem::path& model);

  struct Located {
    const InputFile* file;
    const TensorInfo* tensor;
  };
  std::vector<Located> tensors() const;

 private:
  std::vector<SafetensorsFile> files_;
  std::optional<GgufFile> gguf_;
};

// The part of one tensor that a rank holds.
struct LocalTensor {
  const Rule* rule = nullptr;
  int layer = -1;  // -1: of the model
  std::string name;
  DType type = DType::kF32;  // of its rows: the file's, or of a stored format kMxfp4 or kFp8
  // Of the tensor as a matrix: a vector is [n, 1], a convolution [channels, taps]. Global places are those in the file;
  // the columns of a format in blocks are whole blocks (geometry/held_columns.h).
  AxisMap rows, columns;
  std::optional<InputMap> inputs;  // where this rank's columns stand among those; none: they are the same
};

// Gives the sink that packs a tensor. Called once for each; the sink lives until the tensor's last row has come.
using SinkFactory = std::function<std::unique_ptr<WeightSink>(const LocalTensor&)>;

// How many tensors each rule matched, and what matched none.
struct Tally {
  struct Line {
    const Rule* rule;  // of the plan, which must outlive any use of it; text() makes none
    std::string name;  // short: "q_proj", "norm"
    int found = 0;
    bool padded = false;                      // the rule's global shape grew
    int64_t stock_size = 0, padded_size = 0;  // of the axis that is cut; of a replicated tensor, its elements
  };
  std::vector<Line> lines;
  std::vector<std::string> unused;  // vision, MTP: present, known, not used by the decoders
  std::map<std::string, int> unused_families;
  uint64_t bytes_read = 0;

  // A line a rule, "q_proj 2x [768 -> 1152]", and one for what is present and unused.
  std::string text() const;
};

// Headers alone: matches every tensor with its rule and checks counts, types and shapes. Error(kModel) names the rule
// that does not come out, or the tensor that nothing explains.
Tally check_checkpoint(const Checkpoint& checkpoint, const ShardPlan& plan);

// Reads this rank's byte ranges and no others (`bytes_read` in the tally), tensor by tensor in the order of the file,
// through one buffer of 8 MiB (or one local row, if that is more), into the sinks. A sink that is null skips its
// tensor. Error(kModel) as check_checkpoint, and when the file shrinks under it.
Tally load_shard(const Checkpoint& checkpoint, const ShardPlan& plan, int rank, const SinkFactory& sinks);

}  // namespace coprime
