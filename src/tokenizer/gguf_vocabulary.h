// The vocabulary in a GGUF file's metadata. Internal to the folder.
#pragma once

#include "gguf/gguf_file.h"
#include "tokenizer/tokenizer_spec.h"

namespace coprime {

// Error(kModel) for a file without a vocabulary, another model than byte-level BPE, cuts into pieces that are not
// known, and whatever does not fit together: key, what was found and what is supported.
TokenizerSpec read_gguf_vocabulary(const GgufFile& file);

}  // namespace coprime
