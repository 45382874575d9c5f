#include "base/svg.h"

#include <fmt/format.h>

#include <array>

namespace coprime {
namespace {

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

}  // namespace

std::string_view svg_colour(size_t index) {
  static constexpr std::array<std::string_view, 8> kColours = {"#4c8bf5", "#3fa45b", "#e8a33d", "#b06bd6",
                                                               "#e0655f", "#37a6a6", "#8d7a5b", "#7a88a1"};
  return kColours[index % kColours.size()];
}

std::string svg_text(double x, double y, double size, std::string_view words, std::string_view anchor,
                     std::string_view fill, std::string_view more) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" text-anchor=\"{}\" fill=\"{}\"{}>{}</text>\n", x,
                     y, size, anchor, fill, more, escape(words));
}

}  // namespace coprime
