// A GGUF file: header, keys, tensors, the shape, the vocabulary.
#include "fuzz.h"
#include "geometry/gguf_shape.h"
#include "gguf/gguf_file.h"
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  static InputInMemory input;
  const std::filesystem::path& path = input.hold(data, size);
  fuzz(ErrorKind::kModel, [&] {
    const GgufFile file = GgufFile::open(path);
    for (const TensorInfo& tensor : file.tensors()) {
      std::vector<std::byte> bytes(tensor.bytes);
      file.input().read(tensor.offset, bytes);
    }
  });
  fuzz(ErrorKind::kModel, [&] { gguf_model_shape(GgufFile::open(path)); });
  return fuzz(ErrorKind::kModel, [&] { Tokenizer::open(path).encode("ab <s> 12 \u00e9", true); });
}
