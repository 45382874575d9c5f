#include "tools/line_chart.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace coprime {
namespace {

size_t count(const std::string& text, std::string_view what) {
  size_t found = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(LineChart, draws_points_of_what_was_measured_and_a_dashed_line_of_a_formula_in_one_colour) {
  const Chart chart{
      .title = "a < b",
      .subtitle = "",
      .x_title = "C",
      .y_title = "us",
      .x = ChartAxis::kPowersOfTwo,
      .y = ChartAxis::kPowersOfTen,
      .names = {},
      .series = {{"tree", false, {{1, 10}, {2, 20}, {4, 100}}}, {"tree, model", true, {{1, 11}, {4, 99}}}}};
  const std::string svg = chart_svg(chart);
  EXPECT_EQ(count(svg, "<circle"), 3u);
  EXPECT_EQ(count(svg, "<polyline"), 2u);
  EXPECT_EQ(count(svg, "<polyline points=\"90.0,460.0 "), 1u);  // 10 on an axis from 10 to 100, C from 1 to 4
  EXPECT_EQ(count(svg, "670.0,70.0 \""), 1u);
  EXPECT_EQ(count(svg, "stroke=\"#4c8bf5\" stroke-width=\"2\" stroke-dasharray"), 2u);  // the line, and its key
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
}

TEST(LineChart, has_a_place_for_each_name) {
  const Chart chart{.title = "",
                    .subtitle = "",
                    .x_title = "",
                    .y_title = "",
                    .x = ChartAxis::kNames,
                    .y = ChartAxis::kLinear,
                    .names = {"tree", "chain"},
                    .series = {{"s", false, {{0, 1}, {1, 2}}}}};
  const std::string svg = chart_svg(chart);
  EXPECT_NE(svg.find(">tree</text>"), std::string::npos);
  EXPECT_EQ(count(svg, "cx=\"235.0\""), 1u);  // a quarter of 90 to 670
  EXPECT_EQ(count(svg, "cx=\"525.0\""), 1u);
}

TEST(LineChart, without_points_is_empty_axes) { EXPECT_EQ(count(chart_svg({}), "<circle"), 0u); }

TEST(LineChart, is_known_from_other_pictures) {
  const auto path = std::filesystem::temp_directory_path() / ("coprime-chart-" + std::to_string(::getpid()) + ".svg");
  std::ofstream(path) << chart_svg(
      {.title = "a", .subtitle = "", .x_title = "", .y_title = "", .names = {}, .series = {}});
  EXPECT_TRUE(is_chart_svg(path));
  std::ofstream(path) << "<svg xmlns=\"http://www.w3.org/2000/svg\"></svg>";
  EXPECT_FALSE(is_chart_svg(path));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace coprime
