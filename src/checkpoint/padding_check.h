// One tensor of the file, padded as a rank would hold all of it, against a reading of its own that knows nothing of
// axis maps and readers: every real number where it belongs, every fill as the format says, and no row of MXFP4 with a
// larger exponent than before. Internal to checkpoint.
#pragma once

#include "checkpoint/match.h"

namespace coprime {

// `plan` has one rank that holds its dummies. Error(kModel) names the tensor, the row and what differs.
void check_padding(const Match& match, const ShardPlan& plan);

}  // namespace coprime
