// The file of a machine that coprime plan reads.
#include "plan/machine_file.h"

#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  return fuzz(ErrorKind::kModel, [&] {
    const Machine machine = parse_machine(text_of(data, size), "machine.json");
    parse_machine(machine_json(machine), "its own form");
  });
}
