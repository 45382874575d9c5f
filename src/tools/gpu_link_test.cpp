#include "tools/gpu_link.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace coprime {
namespace {

GpuLinkFigures three_cards(double slow_gb_s, double duplex) {
  GpuLinkFigures figures{.ranks = 3};
  for (int gpu = 0; gpu < 3; ++gpu)
    figures.ports.push_back({gpu, "card", fmt::format("0000:0{}:00.0", gpu), 5, 16, 5, 16, 0});
  figures.ports[2].pcie_width = 4;
  figures.pairs = {{0, 1, false, true, 27.7, 27.6, 1.0, 1.7},
                   {0, 2, false, true, slow_gb_s, slow_gb_s + 1, duplex, 2.9},
                   {1, 2, false, true, slow_gb_s + 2, slow_gb_s + 2, 0.9, 2.9}};
  figures.patterns = {{81920, 11.5}};
  return figures;
}

bool says(const std::vector<std::string>& lines, std::string_view part) {
  return std::ranges::any_of(lines, [&](const std::string& line) { return line.find(part) != std::string::npos; });
}

TEST(GpuLink, the_slowest_link_sets_the_cut_off) {
  const auto slow = gpu_link_advice(three_cards(12.5, 0.9)), fast = gpu_link_advice(three_cards(13.2, 0.9));
  EXPECT_TRUE(says(slow, "pushes 12.5 GB/s: exact all-reduces up to 2 MiB, no wht6 below 13 GB/s"));
  EXPECT_TRUE(says(fast, "pushes 13.2 GB/s: exact all-reduces up to 4 MiB, wht6 allowed"));
}

TEST(GpuLink, advises_a_hub_where_both_ways_at_once_gain_little) {
  EXPECT_TRUE(says(gpu_link_advice(three_cards(14, 0.59)), "ranks 0 and 2 reach 59%"));
  EXPECT_FALSE(says(gpu_link_advice(three_cards(14, 0.61)), "a hub"));
}

TEST(GpuLink, a_pair_without_peer_access_sends_all_to_the_library) {
  GpuLinkFigures figures = three_cards(14, 0.9);
  figures.pairs[1] = {.from = 0, .to = 2};
  const auto lines = gpu_link_advice(figures);
  EXPECT_TRUE(says(lines, "ranks 0 and 2 do not reach each other's memory: all-reduces go by the library"));
  EXPECT_FALSE(says(lines, "exact all-reduces up to"));
  EXPECT_NE(gpu_link_text(figures).find("0-2  no peer access"), std::string::npos);
}

TEST(GpuLink, missing_lanes_and_a_shared_gpu_are_told) {
  EXPECT_TRUE(says(gpu_link_advice(three_cards(14, 0.9)), "GPU 2 has 4 of 16 PCIe lanes"));
  GpuLinkFigures shared{.ranks = 2};
  shared.pairs = {{0, 1, true, true, 900, 900, 0.5, 1}};
  EXPECT_EQ(gpu_link_advice(shared).size(), 1u);
  EXPECT_TRUE(says(gpu_link_advice(shared), "there is no link to measure"));
  EXPECT_EQ(slowest_gpu_link(shared), 0);
}

TEST(GpuLink, text_and_json_hold_the_figures) {
  const GpuLinkFigures figures = three_cards(14, 0.9);
  const std::string text = gpu_link_text(figures);
  EXPECT_NE(text.find("GPU 2: card at 0000:02:00.0, PCIe 5 x4 (it can do 5 x16), 0 NVLinks up"), std::string::npos)
      << text;
  EXPECT_NE(text.find("0-2          14.0          15.0        0.90          2.90"), std::string::npos) << text;
  EXPECT_NE(text.find("80 KiB       11.50              14.2"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(gpu_link_json(figures));
  EXPECT_EQ(json["slowest_gb_s"], 14.0);
  EXPECT_EQ(json["pairs"].size(), 3u);
  EXPECT_EQ(json["gpus"][2]["pcie_width"], 4);
}

}  // namespace
}  // namespace coprime
