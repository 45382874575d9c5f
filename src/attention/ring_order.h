// The order in which KV blocks go round the CUBEs of a group: a cycle whose every edge is one hop. Local ids as they
// count have edges of 4 hops on 2x4 (14 hops in all); the cycle 0 1 2 3 7 6 5 4 has 8 hops of 1.
#pragma once

#include <vector>

#include "attention/mesh.h"

namespace coprime::attention {

// Whether the mesh has such a cycle: an even number of places in at least two rows and columns, or 1 or 2 places.
bool has_ring(Mesh mesh);

struct RingOrder {
  std::vector<int> place;     // by position on the ring
  std::vector<int> position;  // by place

  int next(int at) const { return place[static_cast<size_t>(position[static_cast<size_t>(at)] + 1) % place.size()]; }
  int previous(int at) const {
    return place[(static_cast<size_t>(position[static_cast<size_t>(at)]) + place.size() - 1) % place.size()];
  }
};

// Error(kUsage) for a mesh without one.
RingOrder ring_order(Mesh mesh);

// The KV block that the CUBE at `position` holds at `step` of a ring of `size`: blocks move one position a step.
constexpr int ring_block(int position, int step, int size) { return ((position - step) % size + size) % size; }

// A path over all places, each edge one hop, that ends at `end`; empty: there is none.
std::vector<int> path_to(Mesh mesh, int end);

}  // namespace coprime::attention
