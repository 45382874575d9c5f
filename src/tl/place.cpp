#include "tl/place.h"

#include "base/error.h"

namespace coprime::tl {

std::string name_of(Place place) { return fmt::format("SIP {} CUBE {} PE {}", place.sip, place.cube, place.pe); }

Place Places::peer_of(Place place, Peer peer) const {
  int& own = peer.level == Level::kPe ? place.pe : peer.level == Level::kCube ? place.cube : place.sip;
  const int number = peer.level == Level::kPe ? pes.size() : peer.level == Level::kCube ? cubes.size() : sips;
  if (peer.number < 0 || peer.number >= number || peer.number == own) {
    fail(ErrorKind::kUsage, "a message between number {} and number {} of {}: there is no such pair", own, peer.number,
         number);
  }
  own = peer.number;
  return place;
}

int Places::neighbour(Place place, Level level, attention::Direction direction) const {
  if (level == Level::kSip) return -1;
  return level == Level::kPe ? pes.neighbour(place.pe, direction) : cubes.neighbour(place.cube, direction);
}

}  // namespace coprime::tl
