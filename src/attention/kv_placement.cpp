#include "attention/kv_placement.h"

#include <algorithm>

#include "base/error.h"

namespace coprime::attention {

int KvPlacement::rank_of(int cube_place, int pe) const {
  return (cube_place - first_cube + cubes) % cubes * pes + (pe - first_pe + pes) % pes;
}
int KvPlacement::cube_of(int rank) const { return (rank / pes + first_cube) % cubes; }
int KvPlacement::pe_of(int rank) const { return (rank % pes + first_pe) % pes; }

int64_t KvPlacement::held(int rank, int64_t tokens) const {
  return std::clamp<int64_t>(tokens - begin(rank), 0, block);
}

KvPlacement kv_placement(int64_t largest_context, int cubes, int pes, int64_t multiple, int64_t request) {
  if (largest_context < 1 || cubes < 1 || pes < 1 || multiple < 1 || request < 0)
    fail(ErrorKind::kUsage,
         "a context of {} tokens on {} CUBEs of {} PEs in blocks of {}, request {}; expected at least 1",
         largest_context, cubes, pes, multiple, request);
  const int64_t ranks = int64_t{cubes} * pes, needed = (largest_context - 1) / ranks + 1;
  return {.cubes = cubes,
          .pes = pes,
          .block = ((needed - 1) / multiple + 1) * multiple,
          .first_cube = static_cast<int>(request % cubes),
          .first_pe = static_cast<int>(request / cubes % pes)};
}

}  // namespace coprime::attention
