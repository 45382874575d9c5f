// A chart of lines and points as SVG, for sweeps: what was measured as points joined by a line, what a formula says as
// a dashed line without points. Axes are linear or in powers of two or ten.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace coprime {

enum class ChartAxis : uint8_t { kLinear, kPowersOfTwo, kPowersOfTen, kNames };

struct ChartSeries {
  std::string name;
  bool formula = false;
  std::vector<std::pair<double, double>> points;  // by x
};

struct Chart {
  std::string title, subtitle, x_title, y_title;
  ChartAxis x = ChartAxis::kLinear, y = ChartAxis::kLinear;
  std::vector<std::string> names;  // of x = 0, 1, ... where x is kNames
  std::vector<ChartSeries> series;
};

// A formula has the colour of the series before it. Values on an axis of powers are above 0.
std::string chart_svg(const Chart& chart);

// Whether the file is such a picture. Error(kModel) where none can be read.
bool is_chart_svg(const std::filesystem::path& path);

}  // namespace coprime
