// What `coprime plan` plans for: a model's numbers and its format, from a folder with a config.json (weights or not), a
// GGUF file, or a name.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "geometry/shard_plan.h"
#include "plan/plan.h"

namespace coprime {

struct PlanModel {
  ModelNumbers numbers;
  PlanFormat format;
  std::string format_source;        // "of the config", "of the file", "--format"
  std::optional<ModelShape> shape;  // of a model that coprime runs
  std::filesystem::path weights;    // where its headers are; empty: it has a config alone
  std::vector<DType> types;         // of its matrices, as the device knows them; empty: coprime has no kernels for them
};

// `format`: a name of plan_formats(), or empty for the model's own. Error(kModel) for what is no model, Error(kUsage)
// for a format that does not exist, or one other than a GGUF file's.
PlanModel read_plan_model(const std::string& model, const std::string& format);

// By rank, of a model that coprime runs and in the padded split: exact where there are headers, or where every tensor
// has one plain type. Empty: to be counted from the shape.
std::vector<RankWeights> plan_weights(const PlanModel& model, const PlanOptions& options);

}  // namespace coprime
