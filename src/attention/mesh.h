// A mesh of rows x columns places (PEs of a CUBE, CUBEs of a group), row-major: place = row * columns + column. North
// is the row above, west the column before.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace coprime::attention {

enum class Direction : uint8_t { kNorth, kSouth, kEast, kWest };
inline constexpr std::array kDirections = {Direction::kNorth, Direction::kSouth, Direction::kEast, Direction::kWest};

constexpr Direction opposite(Direction direction) {
  constexpr std::array kOpposite = {Direction::kSouth, Direction::kNorth, Direction::kWest, Direction::kEast};
  return kOpposite[static_cast<size_t>(direction)];
}
constexpr std::string_view name_of(Direction direction) {
  constexpr std::array<std::string_view, 4> kNames = {"N", "S", "E", "W"};
  return kNames[static_cast<size_t>(direction)];
}

struct Mesh {
  int rows = 1, columns = 1;

  constexpr int size() const { return rows * columns; }
  constexpr int row(int place) const { return place / columns; }
  constexpr int column(int place) const { return place % columns; }
  constexpr int at(int row, int column) const { return row * columns + column; }
  // The place one step on; -1: past the edge.
  constexpr int neighbour(int place, Direction direction) const {
    const int row_on = row(place) + (direction == Direction::kSouth ? 1 : 0) - (direction == Direction::kNorth ? 1 : 0);
    const int column_on =
        column(place) + (direction == Direction::kEast ? 1 : 0) - (direction == Direction::kWest ? 1 : 0);
    return row_on < 0 || row_on >= rows || column_on < 0 || column_on >= columns ? -1 : at(row_on, column_on);
  }
  constexpr int hops(int from, int to) const {
    return std::abs(row(from) - row(to)) + std::abs(column(from) - column(to));
  }
  // The first step of the X-Y route (along the row, then along the column); from != to.
  constexpr Direction toward(int from, int to) const {
    if (column(from) != column(to)) return column(from) < column(to) ? Direction::kEast : Direction::kWest;
    return row(from) < row(to) ? Direction::kSouth : Direction::kNorth;
  }
  // The last step of that route arrives from here: the direction, seen from `to`, of the link that it comes in by.
  constexpr Direction arrives_from(int from, int to) const {
    if (row(from) != row(to)) return row(from) < row(to) ? Direction::kNorth : Direction::kSouth;
    return column(from) < column(to) ? Direction::kWest : Direction::kEast;
  }
  // The place in the middle: of several, the one nearest to place 0 (2x4, 4x2 and 4x4 have no true centre).
  constexpr int centre() const { return at((rows - 1) / 2, (columns - 1) / 2); }

  bool operator==(const Mesh&) const = default;
};

}  // namespace coprime::attention
