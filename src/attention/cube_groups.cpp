#include "attention/cube_groups.h"

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace coprime::attention {

Mesh pe_mesh(int pes) {
  if (pes < 1 || pes > 8) fail(ErrorKind::kUsage, "{} PEs a CUBE; expected 1 to 8", pes);
  return pes >= 4 && pes % 2 == 0 ? Mesh{2, pes / 2} : Mesh{1, pes};
}

int CubeGroups::cube(int number, int place) const {
  COPRIME_CHECK(number >= 0 && number < count() && place >= 0 && place < group.size(), "group {}, place {}", number,
                place);
  return sip.at(number / per_row() * group.rows + group.row(place),
                number % per_row() * group.columns + group.column(place));
}

int CubeGroups::group_of(int cube) const {
  const int row = sip.row(cube) / group.rows, column = sip.column(cube) / group.columns;
  return row < sip.rows / group.rows && column < per_row() ? row * per_row() + column : -1;
}

int CubeGroups::place_of(int cube) const {
  return group.at(sip.row(cube) % group.rows, sip.column(cube) % group.columns);
}

CubeGroups cube_groups(Mesh sip, int cubes) {
  std::optional<CubeGroups> best;
  const auto rank = [](const CubeGroups& groups) {
    return std::pair(groups.count(), -(groups.group.rows + groups.group.columns));
  };
  for (int rows = 1; rows <= sip.rows; ++rows) {
    if (cubes < 1 || cubes % rows != 0 || cubes / rows > sip.columns) continue;
    const CubeGroups groups{sip, {rows, cubes / rows}};
    if (!best || rank(groups) > rank(*best)) best = groups;
  }
  if (!best)
    fail(ErrorKind::kUsage,
         "a group of {} CUBEs is no rectangle within {}x{}; of 4x4 choose 1, 2, 3, 4, 6, 8, 9, 12 or 16", cubes,
         sip.rows, sip.columns);
  return *best;
}

}  // namespace coprime::attention
