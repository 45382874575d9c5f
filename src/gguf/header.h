// The parts of a GGUF file's header. Internal to gguf.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gguf/gguf_file.h"
#include "gguf/header_reader.h"

namespace coprime {

using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

// Bytes of a scalar; 0 for strings and arrays.
uint64_t gguf_scalar_bytes(GgufType type);

// A scalar, or one element of an array of scalars. Error(kModel) for a boolean that is neither 0 nor 1.
GgufValue read_gguf_scalar(HeaderReader& reader, GgufType type, const std::string& where);

// `count` keys with their values.
GgufMetadata read_gguf_metadata(HeaderReader& reader, uint64_t count, const std::string& file);

// `count` tensors, with their offsets from the start of the file, by place.
std::vector<TensorInfo> read_gguf_tensors(HeaderReader& reader, uint64_t count, uint64_t alignment,
                                          const InputFile& file);

}  // namespace coprime
