// The wire forms of a step and of its result. What is read is written as it was.
#include "model/step_batch.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  const auto bytes = bytes_of(data, size);
  fuzz(ErrorKind::kInternal, [&] {
    const std::vector<std::byte> again = encode(decode_step_batch(bytes));
    if (!std::ranges::equal(again, encode(decode_step_batch(again)))) std::abort();
  });
  return fuzz(ErrorKind::kInternal, [&] { decode_step_result(bytes); });
}
