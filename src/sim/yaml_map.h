// The part of YAML that files of ours use: maps of maps and scalars. Everything else is refused, before it can cost
// memory or stack. Each node knows its line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace coprime::sim {

struct YamlNode {
  std::string key;  // within the map around it
  int line = 1;
  bool is_map = false;
  std::string scalar;
  std::vector<YamlNode> entries;  // in the file's order; keys are distinct
};

// Error(kModel), led by `where`:line, for what is no YAML, no such map, larger than `most_bytes` or deeper than
// `depth`.
YamlNode parse_yaml_map(std::string_view text, const std::string& where, size_t most_bytes, int depth);

}  // namespace coprime::sim
