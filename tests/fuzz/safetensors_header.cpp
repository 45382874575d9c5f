// A safetensors file's header, of a file of 64 bytes of data.
#include "checkpoint/safetensors.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  return fuzz(ErrorKind::kModel, [&] {
    const uint64_t file_bytes = 8 + size + 64;
    for (const TensorInfo& tensor : parse_safetensors_header(text_of(data, size), file_bytes, "a.safetensors"))
      if (tensor.offset > file_bytes || tensor.bytes > file_bytes - tensor.offset) std::abort();
  });
}
