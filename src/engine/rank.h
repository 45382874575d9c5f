// One rank, as a process or a thread: it loads its shard, joins the gates, and runs the steps that the front sends
// until the front says stop or is gone. It never prints: what goes wrong, and what its gates have to report, travels to
// the front.
#pragma once

#include "base/unique_fd.h"
#include "model/weights.h"
#include "transport/channel.h"

namespace coprime {

// What tests may put between the checkpoint and the device.
struct RankHooks {
  SinkFilter filter;
};

// Runs until the control channel ends. `window` is the shared window's descriptor (none over tcp or alone), `progress`
// the progress page's. Throws nothing.
void run_rank(Channel& control, UniqueFd window, UniqueFd progress, const RankHooks& hooks = {});

}  // namespace coprime
