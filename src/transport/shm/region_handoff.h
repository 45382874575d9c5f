// How the ranks of one host come to share one region: the lowest of them makes it and hands it to the others over a
// Unix socket whose abstract name follows from the world's id, to those that prove that they hold the world's key.
//
// Nothing is believed: a member checks the seals, the size and the layout of what it gets. The group shares the region
// only if every member has it; otherwise all of them fall back together. A failure here is no error of the world: where
// a container hides the socket, TCP still works.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/mesh.h"
#include "transport/shm/shm_region.h"

namespace coprime {

struct SharedRegion {
  std::shared_ptr<const ShmRegion> region;  // null: the group does not share memory
  int index = 0;                            // this rank's place in the group, and in the region
  std::string failure;                      // why not: "rank 2 did not fetch the shared window within 2000 ms: ..."
};

// `group`: the ranks of this host in rising order, two at least, this rank among them. Every member calls it with the
// same group and slot size. Returns within timeout_ms and a little. The region's ranks are places in the group.
//
// When the last word is lost between two members, one may share and another not: who owns the world asks all of them.
SharedRegion share_region(const Membership& me, const std::vector<int>& group, size_t slot_bytes, int timeout_ms);

}  // namespace coprime
