// The parts of a tokenizer.json around its model: normalizer, pre_tokenizer, post_processor, decoder. Internal to the
// folder.
#pragma once

#include "tokenizer/json_node.h"
#include "tokenizer/tokenizer_spec.h"

namespace coprime {

// `root` is the document. Error(kModel) for every type or option that is not supported, by name.
void read_pipeline(const JsonNode& root, TokenizerSpec* spec);

}  // namespace coprime
