// A rank's half of making links: it listens, shares memory with the ranks of its host, connects to the others, and says
// what came of it. The front's half is in linking.h; both run again, with a higher epoch, when links are rebuilt.
#pragma once

#include <functional>
#include <optional>
#include <string>

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
  RankLinks(const RankStart& start, const RankPlacement& placement);

  // Of this rank: its operator's choice, or the front's, or its host's cores shared out.
  int threads(const RankGroup& group) const;

  const std::string& no_verbs() const { return no_verbs_; }  // why no RDMA device is open; empty: one is
  const std::string& no_ucx() const { return no_ucx_; }
  int port() const { return listener_ ? listener_->port() : 0; }

  // Makes the links that the front asks for by `group`, and by a second message that `next` receives. An exchange of
  // the last links must be gone. Error(kLink) naming the ranks that do not answer.
  using Next = std::function<Message(MessageType)>;
  std::unique_ptr<Exchange> make(Channel& control, const RankGroup& group, const Next& next,
                                 const GateSchedule& schedule, const std::shared_ptr<const ProgressPage>& progress);

 private:
  std::vector<Endpoint> endpoints(const LinkTable& table) const;
  PeerConnection connect(int peer, Link link, MeshConnection mesh, size_t slot_bytes, LinkReport& report) const;

  RankStart start_;
  std::string front_host_;
  int threads_;
  Membership me_;
  std::optional<Listener> listener_;
  VerbsOptions verbs_options_;
  std::shared_ptr<VerbsDevice> verbs_;  // null: this host has none that works
  std::string no_verbs_;
  std::shared_ptr<UcxContext> ucx_;  // null: not wished, or not here
  std::string no_ucx_;
};

// A message to the front.
template <class T>
void send_to_front(Channel& control, MessageType type, const T& value) {
  const std::string text = to_json(value);
  control.send(static_cast<uint32_t>(type), std::as_bytes(std::span(text)));
}

}  // namespace coprime
