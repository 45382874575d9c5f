// Which place sends its (m, l, O) to which, and when: a reduction to one root, as plain data. A round is the time of
// one message; a place receives at most one message a round. The order in which a place receives is static (by round),
// so that results do not depend on who is late. ADR-0060, section 4; spec X10 to X13.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "attention/mesh.h"

namespace coprime::attention {

enum class ReduceTopology : uint8_t {
  kTree,        // along columns, then along rows: ceil(log2 places) rounds of single hops up to 4x4
  kCentreMesh,  // every row to the centre column, then the centre column to the root: the same rounds, other edges
  kChain,       // one path of single hops over all places that ends at the root
  kRing,        // the ring's two arms, which meet at the root: half the rounds of the chain
  kStar,        // all straight to the root, which receives them one by one
};
inline constexpr std::array kReduceTopologies = {ReduceTopology::kTree, ReduceTopology::kCentreMesh,
                                                 ReduceTopology::kChain, ReduceTopology::kRing, ReduceTopology::kStar};
std::string_view name_of(ReduceTopology topology);  // tree, mesh, chain, ring, star

struct ReduceMessage {
  int round = 0;  // from 1
  int from = 0, to = 0;
  Direction leaves = Direction::kNorth;   // seen from `from`
  Direction arrives = Direction::kNorth;  // seen from `to`
  int hops = 1;
  bool operator==(const ReduceMessage&) const = default;
};

// What one place does: it receives in this order, merging each into its own, and then sends (the root does not).
struct ReducePart {
  std::vector<ReduceMessage> receives;
  std::optional<ReduceMessage> send;
};

struct ReduceSchedule {
  Mesh mesh;
  int root = 0, rounds = 0;
  std::vector<ReduceMessage> messages;  // places - 1, by round, then by `from`

  ReducePart part(int place) const;
};

// The root is the mesh's centre; a chain has it at the path's end, which on a line is place 0.
// Error(kUsage) for a mesh beyond 8x8, and for a ring over a mesh that has none.
ReduceSchedule reduce_schedule(Mesh mesh, ReduceTopology topology);

// PEs of each CUBE to its root PE, then the root PEs of the CUBEs to the group's root.
struct TwoLevelReduce {
  ReduceSchedule within, across;  // of PEs, of CUBEs

  int rounds() const { return within.rounds + across.rounds; }
  int64_t triplets() const;                         // (m, l, O) that are sent: ranks - 1
  int64_t sends() const { return 3 * triplets(); }  // each is three messages
};
TwoLevelReduce two_level_reduce(Mesh pes, ReduceTopology within, Mesh cubes, ReduceTopology across);

// Bytes of one (m, l, O) of `rows` rows with elements of m and l, and of O, of so many bytes.
constexpr int64_t triplet_bytes(int64_t rows, int64_t d, int64_t scalar_bytes = 4, int64_t output_bytes = 4) {
  return rows * (2 * scalar_bytes + d * output_bytes);
}

}  // namespace coprime::attention
