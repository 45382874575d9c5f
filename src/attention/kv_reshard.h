// What moves when a KV cache changes its layout: which PE has which tokens of which head before, and which after.
// ADR-0060 forbids it between prefill and decode; between short and long contexts it is an operation of its own, with
// a price. spec X24.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/cube_groups.h"
#include "attention/kv_placement.h"

namespace coprime::attention {

// Numbers within the chip.
struct KvHome {
  int sip = 0, cube = 0, pe = 0;
  bool operator==(const KvHome&) const = default;
};

// Where each head's keys lie: on a group of CUBEs, or (`heads_per_cube` > 0) whole on a CUBE of the chip.
struct KvLayout {
  Mesh sip;  // of CUBEs
  int sips = 1;
  int heads_per_cube = 0;
  CubeGroups groups;  // where heads_per_cube is 0
  KvPlacement placement;

  KvHome home(int head, int rank) const;
};

// The layouts of decode (groups of `cubes` CUBEs; 1 and one PE: no sequence parallelism) and of decode-short.
KvLayout long_layout(Mesh sip, int sips, int64_t largest_context, int cubes, int pes);
KvLayout short_layout(Mesh sip, int sips, int64_t largest_context, int heads_per_cube, int pes);

struct KvMove {
  int head = 0;
  int64_t tokens = 0;
  KvHome from, to;
};

// Of `tokens` tokens of each of `heads` heads: what does not stay, in the order of heads and tokens.
std::vector<KvMove> kv_moves(const KvLayout& before, const KvLayout& after, int heads, int64_t tokens);

}  // namespace coprime::attention
