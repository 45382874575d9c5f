// GGUF files of the golden models, written as a converter would: its names, its orders, its norms. What it changes is
// written out here once more, away from the code under test.
#pragma once

#include <filesystem>

#include "tensor/dtype.h"

namespace coprime {

// The golden model's own numbers in F32.
void write_gguf(const std::filesystem::path& model, const std::filesystem::path& to);

// The same model with other weights: every matrix in random blocks of `type` where its rows are whole ones, else of
// Q8_0, else as it is; `dequantised`: the very same numbers as F32.
void write_random_gguf(const std::filesystem::path& model, const std::filesystem::path& to, DType type,
                       bool dequantised);

}  // namespace coprime
