#include "sim/reshard_cost.h"

#include <algorithm>
#include <map>

#include "sim/context.h"

namespace coprime::sim {
namespace {

using attention::KvHome;
using attention::Mesh;

// The bytes that cross each link: by level, place that it leaves from, and direction.
class Loads {
 public:
  Loads(const Chip& chip, Mesh cubes, Mesh pes) : sips_(static_cast<int>(chip.sips)), cubes_(cubes), pes_(pes) {}

  void move(KvHome at, const KvHome& to, int64_t bytes) {
    hbm_[index(at)] += bytes, hbm_[index(to)] += bytes;
    while (at.sip != to.sip) {  // around the ring of SIPs, the shorter way
      const int up = (to.sip - at.sip + sips_) % sips_, way = up * 2 <= sips_ ? 0 : 1;
      links_[2][{at.sip, way}] += bytes;
      at.sip = (at.sip + (way == 0 ? 1 : sips_ - 1)) % sips_;
    }
    while (at.cube != to.cube) {
      const attention::Direction way = cubes_.toward(at.cube, to.cube);
      links_[1][{at.sip * cubes_.size() + at.cube, static_cast<int>(way)}] += bytes;
      at.cube = cubes_.neighbour(at.cube, way);
    }
    while (at.pe != to.pe) {
      const attention::Direction way = pes_.toward(at.pe, to.pe);
      links_[0][{index(at), static_cast<int>(way)}] += bytes;
      at.pe = pes_.neighbour(at.pe, way);
    }
  }

  int64_t byte_hops(size_t level) const {
    int64_t sum = 0;
    for (const auto& [link, bytes] : links_[level]) sum += bytes;
    return sum;
  }
  int64_t busiest_link(size_t level) const { return largest(links_[level]); }
  int64_t busiest_hbm() const { return largest(hbm_); }

 private:
  static int64_t largest(const auto& loads) {
    int64_t most = 0;
    for (const auto& [place, bytes] : loads) most = std::max(most, bytes);
    return most;
  }
  int index(const KvHome& at) const { return (at.sip * cubes_.size() + at.cube) * pes_.size() + at.pe; }

  const int sips_;
  const Mesh cubes_, pes_;
  std::map<int, int64_t> hbm_;
  std::array<std::map<std::pair<int, int>, int64_t>, 3> links_;
};

}  // namespace

ReshardCost reshard_cost(const Chip& chip, std::span<const attention::KvMove> moves, int64_t d) {
  Loads loads(chip, {static_cast<int>(chip.cube_rows), static_cast<int>(chip.cube_columns)},
              attention::pe_mesh(static_cast<int>(chip.pes)));
  ReshardCost cost;
  for (const attention::KvMove& move : moves) {
    const int64_t bytes = move.tokens * 2 * d * 2;
    cost.bytes += bytes;
    loads.move(move.from, move.to, bytes);
  }
  const auto bound = [&](int64_t bytes, int64_t gb_s, std::string_view by) {
    const Tick ticks = transfer_ticks(bytes, gb_s);
    if (ticks > cost.at_least) cost.at_least = ticks, cost.by = by;
  };
  bound(loads.busiest_hbm(), chip.pe.dma.hbm_gb_s, "hbm");
  bound(loads.busiest_link(0), chip.ipcq.pe.gb_s, "links between PEs");
  bound(loads.busiest_link(1), chip.ipcq.cube.gb_s, "links between CUBEs");
  bound(loads.busiest_link(2), chip.ipcq.sip.gb_s, "links between SIPs");
  for (size_t level = 0; level < cost.byte_hops.size(); ++level) cost.byte_hops[level] = loads.byte_hops(level);
  return cost;
}

}  // namespace coprime::sim
