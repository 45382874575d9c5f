#include "attention/ring_order.h"

#include <algorithm>

#include "base/error.h"

namespace coprime::attention {
namespace {

// Along row 0, then back in a snake through what is left of each column, from the last one to the first; `rows` >= 2
// and an even number of columns. Its transpose serves an even number of rows.
std::vector<int> comb(Mesh mesh) {
  std::vector<int> order;
  for (int column = 0; column < mesh.columns; ++column) order.push_back(mesh.at(0, column));
  for (int column = mesh.columns - 1; column >= 0; --column) {
    const bool down = (mesh.columns - 1 - column) % 2 == 0;
    for (int i = 1; i < mesh.rows; ++i) order.push_back(mesh.at(down ? i : mesh.rows - i, column));
  }
  return order;
}

// Extends `path` (its places are marked) to all places, depth first.
bool extend(Mesh mesh, std::vector<int>& path, std::vector<bool>& seen) {
  if (path.size() == static_cast<size_t>(mesh.size())) return true;
  for (const Direction direction : kDirections) {
    const int next = mesh.neighbour(path.back(), direction);
    if (next < 0 || seen[static_cast<size_t>(next)]) continue;
    seen[static_cast<size_t>(next)] = true;
    path.push_back(next);
    if (extend(mesh, path, seen)) return true;
    path.pop_back();
    seen[static_cast<size_t>(next)] = false;
  }
  return false;
}

}  // namespace

bool has_ring(Mesh mesh) { return mesh.size() <= 2 || (mesh.rows > 1 && mesh.columns > 1 && mesh.size() % 2 == 0); }

RingOrder ring_order(Mesh mesh) {
  if (!has_ring(mesh))
    fail(ErrorKind::kUsage,
         "{}x{} places have no cycle of single hops, which a ring needs; choose an even number in two rows or more",
         mesh.rows, mesh.columns);
  RingOrder ring;
  if (mesh.columns % 2 == 0) {
    ring.place = comb(mesh);
  } else {
    for (const int place : comb({mesh.columns, mesh.rows}))
      ring.place.push_back(mesh.at(place % mesh.rows, place / mesh.rows));
  }
  ring.position.resize(ring.place.size());
  for (size_t i = 0; i < ring.place.size(); ++i)
    ring.position[static_cast<size_t>(ring.place[i])] = static_cast<int>(i);
  return ring;
}

std::vector<int> path_to(Mesh mesh, int end) {
  std::vector<int> path;
  if (mesh.size() > 2 && has_ring(mesh)) {  // the cycle, cut behind its end
    const RingOrder ring = ring_order(mesh);
    for (int i = 1, at = end; i <= mesh.size(); ++i) path.push_back(at = ring.next(at));
    return path;
  }
  std::vector<bool> seen(static_cast<size_t>(mesh.size()));
  seen[static_cast<size_t>(end)] = true;
  path.push_back(end);
  if (!extend(mesh, path, seen)) return {};
  std::ranges::reverse(path);
  return path;
}

}  // namespace coprime::attention
