// The config.json of a checkpoint that is to be made: a folder's or a named shape's, with the number of layers and the
// format that were asked for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "tools/synth_layout.h"

namespace coprime {

struct SynthConfig {
  std::string text;    // of the config.json to write
  ModelShape shape;    // unless it is a drafter's
  VisionShape vision;  // none: the config has no vision tower
  std::optional<DrafterShape> draft;
  std::filesystem::path folder;  // that it was read from; empty: a named shape
};

// `source`: a folder with a config.json, or the name of a shape. `layers`: the first so many; 0: all. Error(kModel) for
// a config that cannot be read or asks for what coprime does not compute, Error(kUsage) for a name that is none.
SynthConfig read_synth_config(const std::string& source, int layers, const SynthOptions& options);

}  // namespace coprime
