// Who owns what, as SVG: one strip a quantity, cut into the ranks' runs; real heads and columns in the rank's colour,
// dummies hatched; below, what fills each rank's memory.
#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "base/svg.h"
#include "plan/plan_quantities.h"
#include "plan/plan_report.h"

namespace coprime {
namespace {

constexpr double kWidth = 1020, kLabels = 190, kRight = 20, kStrip = kWidth - kLabels - kRight, kStripHeight = 26,
                 kRow = 56, kTop = 96;
constexpr int64_t kMostTicks = 120;  // heads that are told apart
constexpr std::string_view kBold = " font-weight=\"bold\"";

std::string box(double x, double y, double width, double height, std::string_view fill,
                std::string_view stroke = "#57606a") {
  return fmt::format(
      "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"{}\" "
      "stroke-width=\"0.7\"/>\n",
      x, y, width, height, fill, stroke);
}

// One rank's run: real, then dummies. A sliver of dummies is drawn wide enough to be seen.
std::string run(double x, double width, double y, int64_t real, int64_t held, size_t rank) {
  constexpr double kLeast = 4;
  double dummies = held == 0 ? 0 : width * static_cast<double>(held - real) / static_cast<double>(held);
  if (held > real) dummies = std::min(std::max(dummies, kLeast), width);
  std::string svg;
  if (real > 0) svg += box(x, y, width - dummies, kStripHeight, svg_colour(rank));
  if (held > real) svg += box(x + width - dummies, y, dummies, kStripHeight, "url(#dummy)");
  return svg;
}

std::string ticks(double x, double width, double y, int64_t held) {
  std::string svg;
  for (int64_t i = 1; i < held; ++i) {
    const double at = x + width * static_cast<double>(i) / static_cast<double>(held);
    svg += fmt::format(
        "<line x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" stroke=\"#ffffff\" stroke-width=\"1.2\"/>\n",
        at, y, y + kStripHeight);
  }
  return svg;
}

std::string strip(const Quantity& quantity, double y) {
  const int64_t all = std::accumulate(quantity.held.begin(), quantity.held.end(), int64_t{0});
  std::string svg = svg_text(10, y + 12, 13, quantity.title, "start", "#1b1f24", kBold);
  svg += svg_text(10, y + 27, 11,
                  quantity.stock == quantity.padded ? fmt::format("{}", quantity.stock)
                                                    : fmt::format("{} padded to {}", quantity.stock, quantity.padded),
                  "start", "#57606a");
  if (all == 0) return svg;
  double x = kLabels;
  for (size_t rank = 0; rank < quantity.held.size(); ++rank) {
    const int64_t held = quantity.held[rank], real = quantity.real[rank];
    const double width = kStrip * static_cast<double>(held) / static_cast<double>(all);
    svg += run(x, width, y, real, held, rank);
    if (all <= kMostTicks) svg += ticks(x, width, y, held);
    if (rank > 0)
      svg += fmt::format(
          "<line x1=\"{0:.2f}\" y1=\"{1:.1f}\" x2=\"{0:.2f}\" y2=\"{2:.1f}\" stroke=\"#1b1f24\" stroke-width=\"2\"/>\n",
          x, y - 4, y + kStripHeight + 4);
    const std::string label =
        held == real ? fmt::format("{}", real) : fmt::format("{} + {} dummies", real, held - real);
    const std::string brief = held == real ? label : fmt::format("{}+{}", real, held - real);
    // A digit is a little wider than half the font's size.
    const auto fits = [&](const std::string& words, double size) {
      return static_cast<double>(words.size()) * size * 0.56 < width;
    };
    const auto write = [&](const std::string& words, double size) {
      svg += svg_text(x + width / 2, y + kStripHeight + 13, size, words, "middle", "#57606a");
    };
    if (fits(label, 11)) {
      write(label, 11);
    } else if (fits(brief, 11)) {
      write(brief, 11);
    } else if (fits(brief, 9)) {
      write(brief, 9);
    }
    x += width;
  }
  return svg;
}

std::string memory_bar(const Plan& plan, size_t rank, double y, double scale) {
  const RankMemory& m = plan.main().ranks[rank];
  const double batch = static_cast<double>(plan.input.batch);
  const std::array<std::pair<double, std::string_view>, 3> parts = {
      std::pair{m.weights, svg_colour(rank)},
      {batch * (m.kv_per_token * static_cast<double>(plan.input.context) + m.state), "#c8d6ef"},
      {m.gate_slots + m.scratch + m.activations, "#d8dee4"}};
  std::string svg = svg_text(10, y + 14, 12, fmt::format("rank {}", rank));
  double x = kLabels;
  for (const auto& [bytes, fill] : parts) {
    svg += box(x, y, bytes * scale, 18, fill);
    x += bytes * scale;
  }
  const double all = parts[0].first + parts[1].first + parts[2].first;
  return svg + svg_text(x + 6, y + 14, 11, size_text(all), "start", "#57606a");
}

std::string memory_part(const Plan& plan, double y) {
  const SplitPlan& main = plan.main();
  double most = 1;
  for (const RankMemory& m : main.ranks) {
    most = std::max(most, m.fixed() + static_cast<double>(plan.input.batch) *
                                          (m.state + m.kv_per_token * static_cast<double>(plan.input.context)));
  }
  const double scale = (kStrip - 70) / most;
  std::string svg = svg_text(10, y, 13, "memory by rank", "start", "#1b1f24", kBold);
  svg += svg_text(
      kLabels, y, 11,
      fmt::format("weights, then keys, values and states at {} tokens, then slots and activations", plan.input.context),
      "start", "#57606a");
  for (size_t rank = 0; rank < main.ranks.size(); ++rank)
    svg += memory_bar(plan, rank, y + 12 + 24 * static_cast<double>(rank), scale);
  return svg;
}

}  // namespace

std::string plan_picture(const Plan& plan) {
  const std::vector<Quantity> quantities = plan_quantities(plan);
  const double memory_top = kTop + kRow * static_cast<double>(quantities.size()) + 18,
               height = memory_top + 24 + 24 * static_cast<double>(plan.main().ranks.size());
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "font-family=\"Helvetica, Arial, sans-serif\">\n<defs><pattern id=\"dummy\" width=\"6\" height=\"6\" "
      "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" "
      "fill=\"#ffffff\"/>"
      "<line x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\" stroke=\"#8c959f\" stroke-width=\"2\"/></pattern></defs>\n",
      kWidth, height);
  svg += fmt::format("<rect width=\"{:.0f}\" height=\"{:.0f}\" fill=\"#ffffff\"/>\n", kWidth, height);
  svg += svg_text(10, 26, 17, fmt::format("{} on {} ranks", plan.input.model.name, plan.input.ranks), "start",
                  "#1b1f24", kBold);
  svg += svg_text(10, 46, 12,
                  fmt::format("{} layers, hidden size {}, {}; each strip is an axis of the model, from its first head "
                              "or column to its last",
                              plan.input.model.layers, plan.input.model.hidden, plan.input.format.title),
                  "start", "#57606a");
  double x = 10;
  for (size_t rank = 0; rank < plan.main().ranks.size(); ++rank) {
    svg += box(x, 60, 12, 12, svg_colour(rank));
    const std::string name = fmt::format("{}{}", plan.main().ranks.size() > 8 ? "" : "rank ", rank);
    svg += svg_text(x + 16, 71, 12, name);
    x += 30 + 7.0 * static_cast<double>(name.size());
  }
  svg += box(x, 60, 12, 12, "url(#dummy)") + svg_text(x + 16, 71, 12, "dummy: zeros; on the CPU held by nobody");
  for (size_t i = 0; i < quantities.size(); ++i) svg += strip(quantities[i], kTop + kRow * static_cast<double>(i));
  return svg + memory_part(plan, memory_top) + "</svg>\n";
}

}  // namespace coprime
