// Writes a checkpoint with its matrices in MXFP4 or FP8, under the names and with the config that other software reads,
// too. Owns which modules are quantised and what the config says; the numbers are tensor/quantise.h's.
//
// The output is a folder of its own, beside which everything is written first: it is there whole, or not at all. Memory
// is bounded by 128 rows of a matrix.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace coprime {

enum class QuantizeFormat : uint8_t { kMxfp4, kFp8Block, kFp8Channel };

struct QuantizeOptions {
  std::filesystem::path model, out;
  QuantizeFormat format = QuantizeFormat::kMxfp4;
};

struct QuantizeReport {
  int quantised = 0, kept = 0;  // matrices; other tensors
  uint64_t bytes_before = 0, bytes_after = 0;
};

// Error(kUsage) where `out` is there already; Error(kModel) for a model that is quantised, a GGUF file, a number that
// is not finite, a full disk.
QuantizeReport quantize_model(const QuantizeOptions& options,
                              const std::function<void(uint64_t done, uint64_t total)>& progress);

}  // namespace coprime
