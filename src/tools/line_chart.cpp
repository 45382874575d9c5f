#include "tools/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

#include "base/check.h"
#include "base/input_file.h"
#include "base/svg.h"

namespace coprime {
namespace {

constexpr double kWidth = 900, kHeight = 520, kLeft = 90, kRight = 230, kTop = 70, kBottom = 60;

constexpr std::string_view kMark = "<!-- a chart of coprime -->";

std::string line(double x0, double y0, double x1, double y1, std::string_view stroke, double width) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"{}\"/>\n", x0, y0, x1,
      y1, stroke, width);
}

// Values of one axis, between two ends of the paper.
class Scale {
 public:
  Scale(ChartAxis axis, double least, double most, double from, double to) : axis_(axis), from_(from), to_(to) {
    if (axis == ChartAxis::kLinear) {
      least_ = std::min(0.0, least);
      step_ = nice_step(most - least_);
      most_ = std::max(std::ceil(most / step_) * step_, least_ + step_);
    } else if (axis == ChartAxis::kNames) {
      least_ = least - 0.5, most_ = most + 0.5;
    } else {
      COPRIME_CHECK(least > 0, "{} on an axis of powers", least);
      least_ = std::floor(power(least) + 1e-9), most_ = std::ceil(power(most) - 1e-9);
      if (most_ <= least_) most_ = least_ + 1;
      step_ = std::max(1.0, std::ceil((most_ - least_) / 10));
    }
  }

  double at(double value) const { return from_ + (place(value) - least_) / (most_ - least_) * (to_ - from_); }

  std::vector<std::pair<double, std::string>> ticks(const std::vector<std::string>& names) const {
    std::vector<std::pair<double, std::string>> ticks;
    if (axis_ == ChartAxis::kNames) {
      for (size_t i = 0; i < names.size(); ++i) ticks.emplace_back(at(static_cast<double>(i)), names[i]);
    } else {
      for (double i = least_; i <= most_ + step_ / 1000; i += step_) {
        const double value =
            axis_ == ChartAxis::kLinear ? i : std::pow(axis_ == ChartAxis::kPowersOfTwo ? 2.0 : 10.0, i);
        ticks.emplace_back(at(value), label(value));
      }
    }
    return ticks;
  }

 private:
  double power(double value) const { return axis_ == ChartAxis::kPowersOfTwo ? std::log2(value) : std::log10(value); }
  double place(double value) const {
    return axis_ == ChartAxis::kLinear || axis_ == ChartAxis::kNames ? value : power(value);
  }
  static double nice_step(double range) {
    if (range <= 0) return 1;
    const double rough = range / 6, unit = std::pow(10.0, std::floor(std::log10(rough)));
    for (const double factor : {1.0, 2.0, 5.0})
      if (rough <= factor * unit) return factor * unit;
    return 10 * unit;
  }
  std::string label(double value) const {
    if (axis_ == ChartAxis::kPowersOfTwo && value >= 1024) {
      const bool mega = value >= 1 << 20;
      return fmt::format("{:g}{}", value / (mega ? 1 << 20 : 1024), mega ? "M" : "K");
    }
    return fmt::format("{:g}", value);
  }

  ChartAxis axis_;
  double from_, to_, least_ = 0, most_ = 1, step_ = 1;
};

}  // namespace

std::string chart_svg(const Chart& chart) {
  double least_x = std::numeric_limits<double>::max(), most_x = std::numeric_limits<double>::lowest();
  double least_y = least_x, most_y = most_x;
  for (const ChartSeries& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      least_x = std::min(least_x, x), most_x = std::max(most_x, x);
      least_y = std::min(least_y, y), most_y = std::max(most_y, y);
    }
  }
  if (least_x > most_x) least_x = most_x = least_y = most_y = 1;  // no points at all: empty axes
  const double right = kWidth - kRight, bottom = kHeight - kBottom;
  const Scale x(chart.x, least_x, most_x, kLeft, right), y(chart.y, least_y, most_y, bottom, kTop);

  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "font-family=\"sans-serif\">\n{2}\n<rect width=\"{0}\" height=\"{1}\" fill=\"#ffffff\"/>\n",
      kWidth, kHeight, kMark);
  svg += svg_text(20, 28, 17, chart.title, "start", "#1b1f24", " font-weight=\"bold\"");
  svg += svg_text(20, 48, 12, chart.subtitle, "start", "#57606a");
  for (const auto& [at, label] : x.ticks(chart.names)) {
    svg += line(at, kTop, at, bottom, "#e6e8eb", 1);
    svg += svg_text(at, bottom + 18, 11, label, "middle", "#57606a");
  }
  for (const auto& [at, label] : y.ticks({})) {
    svg += line(kLeft, at, right, at, "#e6e8eb", 1);
    svg += svg_text(kLeft - 8, at + 4, 11, label, "end", "#57606a");
  }
  svg += line(kLeft, bottom, right, bottom, "#57606a", 1) + line(kLeft, kTop, kLeft, bottom, "#57606a", 1);
  svg += svg_text((kLeft + right) / 2, kHeight - 14, 13, chart.x_title, "middle");
  svg += svg_text(0, 0, 13, chart.y_title, "middle", "#1b1f24",
                  fmt::format(" transform=\"translate(24 {:.1f}) rotate(-90)\"", (kTop + bottom) / 2));

  size_t colour = 7;  // so that the first series has the first
  double key = kTop + 8;
  for (const ChartSeries& series : chart.series) {
    if (!series.formula) ++colour;
    const std::string_view stroke = svg_colour(colour), dash = series.formula ? " stroke-dasharray=\"6 4\"" : "";
    std::string path;
    for (const auto& [px, py] : series.points) path += fmt::format("{:.1f},{:.1f} ", x.at(px), y.at(py));
    svg +=
        fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n", path, stroke, dash);
    if (!series.formula) {
      for (const auto& [px, py] : series.points)
        svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x.at(px), y.at(py), stroke);
    }
    svg += fmt::format("<line x1=\"{0}\" y1=\"{1}\" x2=\"{2}\" y2=\"{1}\" stroke=\"{3}\" stroke-width=\"2\"{4}/>\n",
                       right + 16, key, right + 46, stroke, dash);
    svg += svg_text(right + 54, key + 4, 12, series.name);
    key += 20;
  }
  return svg + "</svg>\n";
}

bool is_chart_svg(const std::filesystem::path& path) {
  const InputFile file = InputFile::open(path);
  std::array<char, 256> begin{};
  const size_t bytes = std::min<uint64_t>(begin.size(), file.bytes());
  file.read(0, std::as_writable_bytes(std::span(begin).first(bytes)));
  return std::string_view(begin.data(), bytes).find(kMark) != std::string_view::npos;
}

}  // namespace coprime
