// Where PEs stand, and who their peers are.
#pragma once

#include <cstdint>
#include <string>

#include "attention/mesh.h"
#include "tl/command.h"

namespace coprime::tl {

// Numbers within the chip.
struct Place {
  int sip = 0, cube = 0, pe = 0;
  bool operator==(const Place&) const = default;
};
std::string name_of(Place place);  // "SIP 0 CUBE 3 PE 1"

// SIPs, the CUBEs of each, the PEs of each of those.
struct Places {
  int sips = 1;
  attention::Mesh cubes, pes;

  int count() const { return sips * cubes.size() * pes.size(); }
  int index_of(Place place) const { return (place.sip * cubes.size() + place.cube) * pes.size() + place.pe; }
  Place place_of(int index) const {
    const int cube = index / pes.size();
    return {cube / cubes.size(), cube % cubes.size(), index % pes.size()};
  }
  // Error(kUsage): there is no such peer.
  Place peer_of(Place place, Peer peer) const;
  // The number of the PE, or CUBE, one step on; -1: past the edge, or of SIPs.
  int neighbour(Place place, Level level, attention::Direction direction) const;
};

}  // namespace coprime::tl
