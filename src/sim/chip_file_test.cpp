#include "sim/chip_file.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "base/error.h"

namespace coprime::sim {
namespace {

std::filesystem::path chip_path(std::string_view name) {
  return std::filesystem::path(COPRIME_SOURCE_DIR) / "chips" / fmt::format("{}.yaml", name);
}
std::string text_of(std::string_view name) {
  std::ifstream file(chip_path(name));
  return {std::istreambuf_iterator<char>(file), {}};
}
std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}
std::string told(const std::string& yaml) {
  try {
    parse_chip(yaml, "a.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kModel);
    return error.what();
  }
  return "accepted";
}

TEST(ChipFile, of_4_sips_is_the_chip_that_commands_use_by_default) {
  const ChipFile file = read_chip(chip_path("ahbm-4sip"));
  EXPECT_EQ(chip_text(file.chip), chip_text(ahbm_chip()));
  EXPECT_EQ(chip_hash(file.chip), chip_hash(ahbm_chip()));
  EXPECT_EQ(file.name, "ahbm-4sip");
}

TEST(ChipFile, of_2_sips_differs_in_that_alone) {
  Chip chip = read_chip(chip_path("ahbm-2sip")).chip;
  EXPECT_EQ(chip.sips, 2);
  EXPECT_NE(chip_hash(chip), chip_hash(ahbm_chip()));
  chip.sips = 4;
  EXPECT_EQ(chip_hash(chip), chip_hash(ahbm_chip()));
}

TEST(ChipFile, says_of_every_value_where_it_comes_from) {
  for (const auto* name : {"ahbm-2sip", "ahbm-4sip", "wormhole-like"}) {
    const ChipFile file = read_chip(chip_path(name));
    ASSERT_EQ(file.values.size(), chip_keys().size());
    for (size_t i = 0; i < file.values.size(); ++i) EXPECT_EQ(file.values[i].key, chip_keys()[i]);
    if (std::string_view(name) != "wormhole-like") {
      for (const Provenance& value : file.values) EXPECT_FALSE(value.note.empty()) << value.key;
    }
    const std::string report = chip_report(file);
    EXPECT_NE(report.find(fmt::format("chip {} {:016x}", name, chip_hash(file.chip))), std::string::npos);
  }
  const ChipFile wormhole = read_chip(chip_path("wormhole-like"));
  EXPECT_EQ(std::ranges::count(wormhole.values, Source::kCalibrated, &Provenance::source), 1);
}

TEST(ChipFile, has_a_hash_that_every_value_changes_and_notes_do_not) {
  const Chip chip = ahbm_chip();
  std::set<uint64_t> hashes = {chip_hash(chip)};
  for (const std::string& key : chip_keys()) {
    Chip changed = chip;
    const std::string value = chip_value(chip, key);
    set_chip_value(changed, key, value == "true" ? "false" : value == "false" ? "true" : value == "1" ? "2" : "1");
    if (value == "4" || value == "8") {
      set_chip_value(changed, key, "2");
    }
    EXPECT_TRUE(hashes.insert(chip_hash(changed)).second) << key;
    set_chip_value(changed, key, value);
    EXPECT_EQ(chip_hash(changed), chip_hash(chip)) << key;
  }
  const std::string text = text_of("ahbm-4sip");
  EXPECT_EQ(chip_hash(parse_chip(replaced(text, "source: assumed", "source: calibrated"), "a.yaml").chip),
            chip_hash(chip));
}

TEST(ChipFile, refuses_a_value_with_path_line_key_expected_and_found) {
  const std::string text = text_of("ahbm-4sip");
  EXPECT_EQ(told(replaced(text, "hbm_gb_s: {value: 256", "hbm_gb_s: {value: fast")),
            "a.yaml:44: key pe.dma.hbm_gb_s: expected a whole number from 1 to 1000000; found fast");
  EXPECT_NE(told(replaced(text, "hbm_gb_s: {value: 256", "hbm_gb_s: {value: 0")).find("found 0"), std::string::npos);
  EXPECT_NE(told(replaced(text, "hbm_gb_s: {value: 256", "hbm_gb_s: {value: 2.5")).find("found 2.5"),
            std::string::npos);
  EXPECT_NE(told(replaced(text, "mac: {value: 0.5", "mac: {value: nan")).find("a number from 0 to"), std::string::npos);
  EXPECT_NE(told(replaced(text, "mac: {value: 0.5", "mac: {value: -1")).find("found -1"), std::string::npos);
  EXPECT_NE(
      told(replaced(text, "contention: {value: true", "contention: {value: yes")).find("true or false; found yes"),
      std::string::npos);
  EXPECT_NE(told(replaced(text, "unit: GB/s", "unit: GiB/s")).find("expected unit GB/s; found GiB/s"),
            std::string::npos);
  EXPECT_NE(
      told(replaced(text, "source: assumed", "source: guessed")).find("assumed, derived or calibrated; found guessed"),
      std::string::npos);
  EXPECT_NE(told(replaced(text, ", source: assumed", "")).find("found no source"), std::string::npos);
  EXPECT_NE(told(replaced(text, "{value: 256, ", "{")).find("found no value"), std::string::npos);
  EXPECT_NE(told(replaced(text, "note: ", "comment: ")).find("value, unit, source and note; found comment"),
            std::string::npos);
  EXPECT_NE(
      told(replaced(text, "  hbm_gb_s:", "  hbm_gbps:")).find("key pe.dma.hbm_gbps: expected a value that chips have"),
      std::string::npos);
  EXPECT_NE(told(replaced(text, "name: ahbm-4sip", "")).find("key name"), std::string::npos);
  EXPECT_EQ(told(replaced(text, "sips: {", "sips: 4 #")),
            "a.yaml:6: key sips: expected {value: ..., unit: SIPs, source: ...}; found 4");
}

TEST(ChipFile, refuses_what_is_missing_or_there_twice) {
  const std::string text = text_of("ahbm-4sip");
  const size_t begin = text.find("  hbm_gb_s"), end = text.find('\n', begin) + 1;
  EXPECT_NE(told(text.substr(0, begin) + text.substr(end)).find("key pe.dma.hbm_gb_s: expected {value: a whole number"),
            std::string::npos);
  EXPECT_NE(
      told(text.substr(0, end) + text.substr(begin)).find("each key once in its map; found hbm_gb_s a second time"),
      std::string::npos);
  EXPECT_NE(
      told(text + "pe.dma." + text.substr(begin + 2, end - begin - 2)).find("each value once; found a second one"),
      std::string::npos);
}

TEST(ChipFile, refuses_values_that_do_not_go_together) {
  const std::string text = text_of("ahbm-4sip");
  EXPECT_EQ(told(replaced(text, "pes: {value: 8", "pes: {value: 6")),
            "a.yaml:9: key pes: expected 1, 2, 4 or 8 (meshes of 1x1, 1x2, 2x2, 2x4); found 6");
  EXPECT_NE(told(replaced(text, "request_bytes: {value: 1024", "request_bytes: {value: 4097"))
                .find("key pe.dma.request_bytes: expected at most one sub-tile of 4096 bytes"),
            std::string::npos);
  EXPECT_NE(told(replaced(text, "tcm_bytes: {value: 2097152", "tcm_bytes: {value: 1048576")).find("key pe.tcm_bytes"),
            std::string::npos);
  EXPECT_NE(
      told(replaced(text, "packet_bytes: {value: 512", "packet_bytes: {value: 8192")).find("key ipcq.packet_bytes"),
      std::string::npos);
}

TEST(ChipFile, values_are_set_by_key_for_sweeps) {
  Chip chip = ahbm_chip();
  set_chip_value(chip, "pe.dma.stages", "3");
  EXPECT_EQ(chip.pe.dma.stages, 3);
  EXPECT_EQ(chip_value(chip, "pe.dma.stages"), "3");
  EXPECT_THROW(set_chip_value(chip, "pe.dma.stages", "0"), Error);
  EXPECT_THROW(set_chip_value(chip, "pe.dma", "1"), Error);
  EXPECT_EQ(chip.pe.dma.stages, 3);
  chip.pe.dma.request_bytes = 1 << 20;
  EXPECT_THROW(check_chip(chip), Error);
}

}  // namespace
}  // namespace coprime::sim
