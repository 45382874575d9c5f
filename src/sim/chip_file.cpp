#include "sim/chip_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <variant>

#include "base/error.h"
#include "base/hash.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "sim/yaml_map.h"

namespace coprime::sim {
namespace {

constexpr size_t kMostBytes = 64 << 10;
constexpr int kMostLevels = 6;
constexpr size_t kMostText = 400;  // of a name or a note

using WholeNumber = int64_t& (*)(Chip&);
using Number = double& (*)(Chip&);
using Switch = bool& (*)(Chip&);

// A value of the chip: its key, unit and range.
struct Field {
  std::string_view key, unit;
  std::variant<WholeNumber, Number, Switch> member;
  int64_t least = 0, most = 0;  // of numbers
};

#define COPRIME_WHOLE(key, unit, least, most)                                             \
  Field {                                                                                 \
#key, unit, WholeNumber([](Chip& chip) -> int64_t& { return chip.key; }), least, most \
  }
#define COPRIME_NUMBER(key, unit)                                                    \
  Field {                                                                            \
#key, unit, Number([](Chip& chip) -> double& { return chip.key; }), 0, 1'000'000 \
  }
#define COPRIME_SWITCH(key)                                              \
  Field {                                                                \
#key, "switch", Switch([](Chip& chip) -> bool& { return chip.key; }) \
  }

constexpr int64_t kMostCycles = 1'000'000, kMostPs = 1'000'000'000, kMostRate = 1'000'000,
                  kMostBytesOf = int64_t{1} << 40;

const std::array kFields = {
    COPRIME_WHOLE(sips, "SIPs", 1, 64),
    COPRIME_WHOLE(cube_rows, "CUBEs", 1, 8),
    COPRIME_WHOLE(cube_columns, "CUBEs", 1, 8),
    COPRIME_WHOLE(pes, "PEs", 1, 8),
    COPRIME_SWITCH(contention),
    COPRIME_WHOLE(pe.ps_per_cycle, "ps", 1, 1'000'000),
    COPRIME_WHOLE(pe.issue.load, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.issue.store, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.issue.composite, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.issue.ex_composite, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.issue.dot, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.issue.math, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.issue.send, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.issue.recv, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.math.lanes, "lanes", 1, 65536),
    COPRIME_WHOLE(pe.math.fill_cycles, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.math.exp_cost, "elements", 1, 1000),
    COPRIME_WHOLE(pe.math.queue_depth, "operations", 1, 4096),
    COPRIME_SWITCH(pe.math.blocking),
    COPRIME_WHOLE(pe.gemm.tile_m, "rows", 1, 4096),
    COPRIME_WHOLE(pe.gemm.tile_k, "columns", 1, 4096),
    COPRIME_WHOLE(pe.gemm.tile_n, "columns", 1, 4096),
    COPRIME_WHOLE(pe.gemm.subtile_cycles, "cycles", 1, kMostCycles),
    COPRIME_WHOLE(pe.gemm.fill_cycles, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.gemm.drain_cycles, "cycles", 0, kMostCycles),
    COPRIME_WHOLE(pe.gemm.composite_depth, "composites", 1, 4096),
    COPRIME_WHOLE(pe.dma.hbm_gb_s, "GB/s", 1, kMostRate),
    COPRIME_WHOLE(pe.dma.latency_ps, "ps", 0, kMostPs),
    COPRIME_WHOLE(pe.dma.request_bytes, "bytes", 1, 1 << 20),
    COPRIME_WHOLE(pe.dma.reads_in_flight, "requests", 1, 4096),
    COPRIME_WHOLE(pe.dma.stages, "sub-tiles", 1, 4096),
    COPRIME_WHOLE(pe.tcm_bytes, "bytes", 1, kMostBytesOf),
    COPRIME_WHOLE(pe.arena_bytes, "bytes", 1, kMostBytesOf),
    COPRIME_WHOLE(ipcq.slot_bytes, "bytes", 1, 1 << 24),
    COPRIME_WHOLE(ipcq.slots, "slots", 1, 4096),
    COPRIME_WHOLE(ipcq.packet_bytes, "bytes", 1, 1 << 24),
    COPRIME_WHOLE(ipcq.pe.gb_s, "GB/s", 1, kMostRate),
    COPRIME_WHOLE(ipcq.pe.hop_ps, "ps", 0, kMostPs),
    COPRIME_WHOLE(ipcq.cube.gb_s, "GB/s", 1, kMostRate),
    COPRIME_WHOLE(ipcq.cube.hop_ps, "ps", 0, kMostPs),
    COPRIME_WHOLE(ipcq.sip.gb_s, "GB/s", 1, kMostRate),
    COPRIME_WHOLE(ipcq.sip.hop_ps, "ps", 0, kMostPs),
    COPRIME_NUMBER(energy.hbm_byte, "pJ/byte"),
    COPRIME_NUMBER(energy.pe_link_byte, "pJ/byte"),
    COPRIME_NUMBER(energy.cube_link_byte, "pJ/byte"),
    COPRIME_NUMBER(energy.sip_link_byte, "pJ/byte"),
    COPRIME_NUMBER(energy.mac, "pJ"),
    COPRIME_NUMBER(energy.math_lane, "pJ"),
    COPRIME_NUMBER(energy.issue, "pJ"),
};

#undef COPRIME_WHOLE
#undef COPRIME_NUMBER
#undef COPRIME_SWITCH

std::string expected_of(const Field& field) {
  if (std::holds_alternative<Switch>(field.member)) return "true or false";
  return fmt::format("a {}number from {} to {}", std::holds_alternative<WholeNumber>(field.member) ? "whole " : "",
                     field.least, field.most);
}

// False: the text is no value of the field; the chip is as it was.
bool assign(const Field& field, Chip& chip, std::string_view text) {
  if (const auto* member = std::get_if<Switch>(&field.member)) {
    if (text != "true" && text != "false") return false;
    (*member)(chip) = text == "true";
    return true;
  }
  const auto read = [&](auto value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole_text = error == std::errc{} && end == text.data() + text.size();
    const auto least = static_cast<decltype(value)>(field.least), most = static_cast<decltype(value)>(field.most);
    return std::pair(value, whole_text && value >= least && value <= most);  // a NaN is neither
  };
  if (const auto* member = std::get_if<WholeNumber>(&field.member)) {
    const auto [value, fits] = read(int64_t{0});
    if (fits) (*member)(chip) = value;
    return fits;
  }
  const auto [value, fits] = read(0.0);
  if (fits) std::get<Number>(field.member)(chip) = value == 0 ? 0.0 : value;  // -0 is 0
  return fits;
}

std::string value_of(const Field& field, const Chip& chip) {
  Chip copy = chip;  // members are reached through a mutable chip
  return std::visit([&](auto member) { return fmt::format("{}", member(copy)); }, field.member);
}

const Field& field_of(std::string_view key) {
  for (const Field& field : kFields)
    if (field.key == key) return field;
  fail(ErrorKind::kUsage, "a chip has no value {}; `coprime sim chip` lists those that it has", printable(key));
}

// A value that does not go together with the others.
struct Problem {
  std::string_view key;
  std::string expected;
  int64_t found = 0;
};

std::optional<Problem> problem_of(const Chip& chip) {
  const Pe& pe = chip.pe;
  if (chip.pes != 1 && chip.pes != 2 && chip.pes != 4 && chip.pes != 8)
    return Problem{"pes", "1, 2, 4 or 8 (meshes of 1x1, 1x2, 2x2, 2x4)", chip.pes};
  const int64_t subtile = 2 * pe.gemm.tile_k * pe.gemm.tile_n;  // of B, in bf16
  if (pe.dma.request_bytes > subtile)
    return Problem{"pe.dma.request_bytes", fmt::format("at most one sub-tile of {} bytes (2 tile_k tile_n)", subtile),
                   pe.dma.request_bytes};
  const int64_t streams = 2 * pe.dma.stages * subtile;  // of composites, and of softmax_pv
  if (pe.tcm_bytes < pe.arena_bytes + streams)
    return Problem{"pe.tcm_bytes",
                   fmt::format("at least {}: the arena and {} bytes of stages", pe.arena_bytes + streams, streams),
                   pe.tcm_bytes};
  if (chip.ipcq.packet_bytes > chip.ipcq.slot_bytes)
    return Problem{"ipcq.packet_bytes", fmt::format("at most slot_bytes, {}", chip.ipcq.slot_bytes),
                   chip.ipcq.packet_bytes};
  return std::nullopt;
}

// Reads the file's tree; every message begins with path and line.
class Reader {
 public:
  explicit Reader(const std::string& where) : where_(where) {}

  ChipFile read(const YamlNode& root) {
    file_.values.resize(kFields.size());
    read_map(root, "");
    if (file_.name.empty()) refuse(root, "name", "a name", "none");
    for (size_t i = 0; i < kFields.size(); ++i)
      if (file_.values[i].key.empty())
        refuse(root, kFields[i].key,
               fmt::format("{{value: {}, unit: {}, source: ...}}", expected_of(kFields[i]), kFields[i].unit), "none");
    if (const auto problem = problem_of(file_.chip))
      for (const Provenance& value : file_.values)
        if (value.key == problem->key)
          fail(ErrorKind::kModel, "{}:{}: key {}: expected {}; found {}", where_, value.line, value.key,
               problem->expected, problem->found);
    return std::move(file_);
  }

 private:
  [[noreturn]] void refuse(const YamlNode& node, std::string_view key, std::string_view expected,
                           std::string_view found) const {
    fail(ErrorKind::kModel, "{}:{}: key {}: expected {}; found {}", where_, node.line, printable(key), expected,
         printable(found));
  }

  static bool is_group(std::string_view key) {
    for (const Field& field : kFields)
      if (field.key.starts_with(std::string(key) + ".")) return true;
    return false;
  }

  void read_map(const YamlNode& map, const std::string& prefix) {
    for (const YamlNode& node : map.entries) {
      const std::string key = prefix.empty() ? node.key : prefix + "." + node.key;
      if (key == "name") {
        file_.name = text(node, key);
        if (file_.name.empty()) refuse(node, key, "a name", "an empty one");
        continue;
      }
      const auto* const field = std::ranges::find(kFields, std::string_view(key), &Field::key);
      if (field != kFields.end()) {
        read_value(node, *field, static_cast<size_t>(field - kFields.begin()));
      } else if (is_group(key)) {
        if (!node.is_map) refuse(node, key, "a map of values", node.scalar);
        read_map(node, key);
      } else {
        refuse(node, key, "a value that chips have", "an unknown one");
      }
    }
  }

  void read_value(const YamlNode& node, const Field& field, size_t index) {
    const std::string key(field.key);
    if (!node.is_map) refuse(node, key, fmt::format("{{value: ..., unit: {}, source: ...}}", field.unit), node.scalar);
    Provenance& provenance = file_.values[index];
    if (!provenance.key.empty()) refuse(node, key, "each value once", "a second one");  // a.b: and a: {b:}
    provenance.key = key;
    provenance.line = node.line;
    bool has_value = false, has_unit = false, has_source = false;
    for (const YamlNode& at : node.entries) {
      const std::string& part = at.key;
      if (part == "value") {
        has_value = assign(field, file_.chip, text(at, key));
        if (!has_value) refuse(at, key, expected_of(field), at.scalar);
      } else if (part == "unit") {
        has_unit = text(at, key) == field.unit;
        if (!has_unit) refuse(at, key, fmt::format("unit {}", field.unit), at.scalar);
      } else if (part == "source") {
        provenance.source = source(at, key);
        has_source = true;
      } else if (part == "note") {
        provenance.note = text(at, key);
      } else {
        refuse(at, key, "value, unit, source and note", part);
      }
    }
    if (!has_value || !has_unit || !has_source)
      refuse(node, key, fmt::format("value, unit ({}) and source", field.unit),
             fmt::format("no {}", !has_value  ? "value"
                                  : !has_unit ? "unit"
                                              : "source"));
  }

  Source source(const YamlNode& node, const std::string& key) const {
    for (const Source source : {Source::kAssumed, Source::kDerived, Source::kCalibrated})
      if (text(node, key) == name_of(source)) return source;
    refuse(node, key, "source assumed, derived or calibrated", node.scalar);
  }

  const std::string& text(const YamlNode& node, const std::string& key) const {
    if (node.is_map) refuse(node, key, "a value", "a map");
    if (node.scalar.size() > kMostText)
      refuse(node, key, fmt::format("at most {} bytes of text", kMostText), node.scalar);
    return node.scalar;
  }

  const std::string& where_;
  ChipFile file_;
};

}  // namespace

std::string_view name_of(Source source) {
  switch (source) {
    case Source::kDerived:
      return "derived";
    case Source::kCalibrated:
      return "calibrated";
    case Source::kAssumed:
      break;
  }
  return "assumed";
}

ChipFile parse_chip(std::string_view yaml, const std::string& where) {
  return Reader(where).read(parse_yaml_map(yaml, where, kMostBytes, kMostLevels));
}

ChipFile read_chip(const std::filesystem::path& path) {
  const InputFile file = InputFile::open(path);
  if (file.bytes() > kMostBytes)
    fail(ErrorKind::kModel, "{}:1: expected at most {} bytes; found {}", path.string(), kMostBytes, file.bytes());
  std::string text(file.bytes(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return parse_chip(text, path.string());
}

std::vector<std::string> chip_keys() {
  std::vector<std::string> keys;
  for (const Field& field : kFields) keys.emplace_back(field.key);
  return keys;
}

std::string chip_value(const Chip& chip, std::string_view key) { return value_of(field_of(key), chip); }

void set_chip_value(Chip& chip, std::string_view key, std::string_view value) {
  const Field& field = field_of(key);
  if (!assign(field, chip, value))
    fail(ErrorKind::kUsage, "{} of the chip: expected {}; found {}", key, expected_of(field), printable(value));
}

void check_chip(const Chip& chip) {
  if (const auto problem = problem_of(chip))
    fail(ErrorKind::kUsage, "{} of the chip: expected {}; found {}", problem->key, problem->expected, problem->found);
}

std::string chip_text(const Chip& chip) {
  std::string text;
  for (const Field& field : kFields) text += fmt::format("{} {} {}\n", field.key, value_of(field, chip), field.unit);
  return text;
}

uint64_t chip_hash(const Chip& chip) {
  const std::string text = chip_text(chip);
  return hash_bytes(std::as_bytes(std::span(text)));
}

std::string chip_report(const ChipFile& file) {
  std::string report = fmt::format("chip {} {:016x}\n", file.name, chip_hash(file.chip));
  for (size_t i = 0; i < kFields.size(); ++i) {
    const Provenance& provenance = file.values[i];
    report += fmt::format("  {:<26} {:>8} {:<10} {:<10} {}", kFields[i].key, value_of(kFields[i], file.chip),
                          kFields[i].unit, name_of(provenance.source), provenance.note);
    report.erase(report.find_last_not_of(' ') + 1);
    report += '\n';
  }
  return report;
}

}  // namespace coprime::sim
