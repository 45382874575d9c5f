// The CUBEs of a SIP in groups of C, each a contiguous rectangle that owns one KV head. Groups are numbered row by row;
// the CUBEs of a group by place within its rectangle. spec R5, R8 to R10, X36.
#pragma once

#include "attention/mesh.h"

namespace coprime::attention {

// `pes` PEs of a CUBE: 1x1, 1x2, 2x2, 2x4, and for 6 a part of that, 2x3. Of 3, 5 and 7 no rectangle has two rows: they
// stand in a line, which winds through 2x4 in single hops. Error(kUsage) for other counts.
Mesh pe_mesh(int pes);
// Whether a tree over them is sure to take ceil(log2 pes) rounds of single hops: of 1, 2, 4 and 8. spec X36a.
constexpr bool is_whole_pe_mesh(int pes) { return pes == 1 || pes == 2 || pes == 4 || pes == 8; }

struct CubeGroups {
  Mesh sip, group;  // of CUBEs

  int per_row() const { return sip.columns / group.columns; }
  int count() const { return per_row() * (sip.rows / group.rows); }
  int cube(int number, int place) const;  // of the SIP
  int group_of(int cube) const;           // -1: the CUBE is in none
  int place_of(int cube) const;           // within its group; the CUBE is in one
};

// Groups of `cubes` CUBEs in the rectangle nearest to a square that gives the most groups, wide rather than high.
// Error(kUsage) if no rectangle of so many CUBEs fits into the SIP.
CubeGroups cube_groups(Mesh sip, int cubes);

// Which KV head a group works for: each SIP has as many heads as groups.
constexpr int head_of(int sip, int group, int groups_per_sip) { return sip * groups_per_sip + group; }

}  // namespace coprime::attention
