// Makes a checkpoint with random weights and the names, shapes, types and files of a real one, so that loading,
// planning and speed can be tried before a download: or its headers alone, over data that takes no room on the disk.
//
// The same bytes for the same options on every machine, whatever the number of threads. Writes into a folder that does
// not exist yet, or is empty; what a failed run has written is removed again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tools/synth_layout.h"

namespace coprime {

struct SynthFile {
  std::string name;  // "model-00001-of-00004.safetensors"
  std::vector<SynthTensor> tensors;
};

// The tensors in files as the field shares them out: at most `most_bytes` of tensors each, in their order; or, with
// `by_layer`, a file for each layer, one for the MTP layers and one for all else.
std::vector<SynthFile> share_out(std::vector<SynthTensor> tensors, int64_t most_bytes, bool by_layer);

struct SynthRun {
  std::string source;  // a folder with a config.json, or the name of a shape
  std::filesystem::path out;
  SynthOptions options;
  int layers = 0;  // the first so many; 0: all
  uint64_t seed = 0;
  bool headers_only = false;
  int threads = 1;
  int64_t file_bytes = 5'000'000'000;  // of tensors in a file at most
  // Called as parts of the data are made, by one thread at a time; may throw, which ends all. May be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

struct SynthReport {
  int tensors = 0, files = 0;
  int64_t bytes = 0;       // of tensors
  bool tokenizer = false;  // the source's was copied
};

// Error(kUsage) for a folder that holds something, Error(kModel) for a config that is not supported and for a disk that
// has no room.
SynthReport make_checkpoint(const SynthRun& run);

}  // namespace coprime
