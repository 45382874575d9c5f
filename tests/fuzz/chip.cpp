// The YAML of a chip. What is accepted is written as text and hashed, and each value can be set again.
#include "sim/chip_file.h"

#include "base/check.h"
#include "fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coprime;
  return fuzz(ErrorKind::kModel, [&] {
    sim::ChipFile file = sim::parse_chip(text_of(data, size), "chip.yaml");
    const uint64_t hash = sim::chip_hash(file.chip);
    for (const std::string& key : sim::chip_keys())
      sim::set_chip_value(file.chip, key, sim::chip_value(file.chip, key));
    COPRIME_CHECK(sim::chip_hash(file.chip) == hash, "a value does not come back");
  });
}
