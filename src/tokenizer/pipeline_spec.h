// The parts of a tokenizer.json around its model: normalizer, pre_tokenizer, post_processor, decoder. Internal to the
// folder.
#pragma once

#include "json/json.h"
#include "tokenizer/tokenizer_spec.h"

namespace coprime {

// What ByteLevel itself splits by (use_regex), as GPT-2 did.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A token's id, in range.
int32_t token_id(const JsonNode& node);

// `root` is the document. Error(kModel) for every type or option that is not supported, by name.
void read_pipeline(const JsonNode& root, TokenizerSpec* spec);

}  // namespace coprime
