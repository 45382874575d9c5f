// The columns of an op_log.
#include "fuzz.h"
#include "sim/op_log_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  static InputInMemory file;
  return fuzz(ErrorKind::kModel, [&] { sim::read_op_log(file.hold(data, size)); });
}
