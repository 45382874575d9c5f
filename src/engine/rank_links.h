// A rank's half of making links: it listens, shares memory with the ranks of its host, connects to the others, and says
// what came of it. The front's half is in linking.h; both run again, with a higher epoch, when links are rebuilt.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/core_plan.h"
#include "engine/front_line.h"
#include "engine/messages.h"
#include "engine/rank.h"
#include "gate/exchange.h"
#include "transport/endpoint.h"
#include "transport/mesh.h"
#include "transport/ucx/ucx.h"
#include "transport/verbs/verbs.h"

namespace coprime {

class RankLinks {
 public:
  // Listens at the place that the front chose, unless the rank is alone. Error(kLink) when the port is taken, or when
  // an RDMA device that was named is not there.
  RankLinks(const LinkStart& start, const RankPlacement& placement);

  // Of this rank: its operator's choice, or the front's, or its host's cores shared out.
  int threads(const RankGroup& group) const;
  // Which cores they get.
  CorePlan cores(const RankGroup& group) const;
  const HostCores& host() const { return host_; }  // as it was before any thread was pinned

  const std::string& no_verbs() const { return no_verbs_; }  // why no RDMA device is open; empty: one is
  const std::string& no_ucx() const { return no_ucx_; }
  int port() const { return listener_ ? listener_->port() : 0; }

  // Makes the links that the front asks for by `group`, and by a second message. An exchange of the last links must be
  // gone. Error(kLink) naming the ranks that do not answer.
  std::unique_ptr<Exchange> make(FrontLine& front, const RankGroup& group, const GateSchedule& schedule,
                                 const std::shared_ptr<const ProgressPage>& progress);
  // Tells the front what was made, and that this rank is ready to use it.
  void tell(FrontLine& front, const Exchange& exchange) const;

  // The ranks of the last make() joined once more, with nothing on the way: memory for those that share it, sockets
  // for the others, whatever the links do with theirs. For measuring beside an exchange. Nothing where links over RDMA
  // are in the world. All these ranks must call it, and the front leaves the epoch after theirs free.
  struct BareParts {
    std::shared_ptr<const ShmRegion> region;
    std::vector<int> region_ranks;
    std::vector<UniqueFd> sockets;  // by rank, non-blocking
  };
  std::optional<BareParts> make_bare(FrontLine& front, size_t slot_bytes) const;

 private:
  std::vector<Endpoint> endpoints() const;
  bool shares_memory() const;
  uint32_t connected() const;  // a bit for each rank to which this one needs a connection
  PeerConnection connect(int peer, Link link, MeshConnection mesh, size_t slot_bytes);

  LinkStart start_;
  const HostCores host_ = read_host_cores();
  std::string front_host_;
  int threads_;
  Membership me_;
  RankGroup group_;  // of the last make(), and the table that followed it
  LinkTable table_;
  LinkReport report_;  // of that one, but for the names
  std::optional<Listener> listener_;
  VerbsOptions verbs_options_;
  std::shared_ptr<VerbsDevice> verbs_;  // null: this host has none that works
  std::string no_verbs_;
  std::shared_ptr<UcxContext> ucx_;  // null: not wished, or not here
  std::string no_ucx_;
};

}  // namespace coprime
