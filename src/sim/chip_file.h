// Chips as YAML: chips/*.yaml. Every value says what it is, in which unit, and where it comes from:
//
//   pe.dma:
//     hbm_gb_s: {value: 256, unit: GB/s, source: derived, note: "8 pseudo-channels of 32 GB/s"}
//
// source: assumed (nobody knows), derived (follows from something public), calibrated (fitted to a measurement).
// Keys are the members of sim::Chip; all of them stand there, once. Refused, with path, line, key, what was expected
// and found: unknown, missing and double keys, other units, values out of range, values that do not go together,
// anchors, aliases, sequences, tags, more than 64 KiB or 6 levels.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "sim/chip.h"

namespace coprime::sim {

enum class Source : uint8_t { kAssumed, kDerived, kCalibrated };
std::string_view name_of(Source source);

// Where one value comes from.
struct Provenance {
  std::string key;  // pe.dma.hbm_gb_s
  Source source = Source::kAssumed;
  std::string note;
  int line = 1;
};

struct ChipFile {
  std::string name;
  Chip chip{};
  std::vector<Provenance> values;  // in the order of chip_keys()
};

// Error(kModel) as above. `where` stands for the path in messages.
ChipFile read_chip(const std::filesystem::path& path);
ChipFile parse_chip(std::string_view yaml, const std::string& where);

// The names of all values, in a fixed order.
std::vector<std::string> chip_keys();

// One value of a chip, by its key, for sweeps. Error(kUsage): there is no such key, or it cannot have that value;
// whether values go together is check_chip()'s.
std::string chip_value(const Chip& chip, std::string_view key);
void set_chip_value(Chip& chip, std::string_view key, std::string_view value);

// Error(kUsage) if values do not go together: what a kernel could not run on, or the rules of docs/simulator-model.md
// do not cover. A file is checked when it is read.
void check_chip(const Chip& chip);

// A line a value: "pe.dma.hbm_gb_s 256 GB/s". The same text for the same chip, whatever file it came from.
std::string chip_text(const Chip& chip);
uint64_t chip_hash(const Chip& chip);  // of that text

// That text with sources and notes, for people.
std::string chip_report(const ChipFile& file);

}  // namespace coprime::sim
