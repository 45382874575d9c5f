// A model that takes a while to load, and how far a process has come with it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>

namespace coprime {

// A Llama of 300 MB, all zero: a sparse file. Replaces a model's config and weights.
void write_large_model(const std::filesystem::path& directory);

// Of a process: memory of its own, no files'; 0 when there is no such process.
int64_t anonymous_bytes(pid_t pid);
// What it has read so far, of files and whatever else; 0 when there is no such process.
int64_t read_bytes(pid_t pid);

}  // namespace coprime
