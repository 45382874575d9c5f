// What all of coprime's pictures are drawn with: one set of colours, one form of text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coprime {

// Eight colours, over and over.
std::string_view svg_colour(size_t index);

// A text element at (x, y). `more`: further attributes, each with a space before it.
std::string svg_text(double x, double y, double size, std::string_view words, std::string_view anchor = "start",
                     std::string_view fill = "#1b1f24", std::string_view more = "");

}  // namespace coprime
