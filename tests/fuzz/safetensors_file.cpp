// A whole safetensors file; what the header says is there is read.
#include "checkpoint/safetensors.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  static InputInMemory input;
  return fuzz(ErrorKind::kModel, [&] {
    const SafetensorsFile file = SafetensorsFile::open(input.hold(data, size));
    for (const TensorInfo& tensor : file.tensors()) {
      std::vector<std::byte> bytes(tensor.bytes);
      file.read(tensor.offset, bytes);
    }
  });
}
