// Which rule each tensor of a checkpoint falls under. Internal to checkpoint.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace coprime {

struct Match {
  Checkpoint::Located at;  // the values; of a stored format its codes
  const Rule* rule;
  int layer;
  const StoredFormat* format = nullptr;  // nullptr: the tensor is the matrix
  Checkpoint::Located scales = {};       // of a stored format
};

struct Matches {
  std::vector<Match> tensors;  // in the order of the files' values
  Tally tally;
};

// Every tensor that the plan's rules predict, once, of a type and a shape that can be loaded; of a matrix that the
// config gives a format, its codes and its scales. Error(kModel) otherwise.
Matches match_tensors(const Checkpoint& checkpoint, const ShardPlan& plan);

// A rule's tensors under their full names.
struct NamedRule {
  std::string name;
  const Rule* rule;
  int layer;
};

// Of every layer that the plan's rules apply to.
std::vector<NamedRule> named_rules(const ShardPlan& plan);

// What came of matching the named rules: all that is wrong is collected.
struct Findings {
  std::vector<Match> tensors;
  std::vector<Checkpoint::Located> unmatched;  // that no rule explains
  std::vector<NamedRule> missing;
  std::vector<std::string> problems;
};
Findings find_tensors(std::span<const Checkpoint::Located> tensors, std::span<const NamedRule> names,
                      const ShardPlan& plan);

// The family of a tensor that is known and not used; empty for any other.
std::string_view unused_family(std::string_view name, const ModelShape& shape);

// A rule's name for messages: "q_proj", "q_proj.bias", "norm".
std::string short_name(const Rule& rule, Container container);

}  // namespace coprime
