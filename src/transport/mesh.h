// How the ranks of a world are joined over TCP: every rank listens, the front gives everybody the table of endpoints,
// and each pair of ranks gets one connection, the higher rank dialling the lower.
//
// A connection counts only after both ends have proved that they hold the world's key and named the same world, epoch
// and ranks. A stranger that knocks is dropped and harms nobody.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/unique_fd.h"
#include "transport/endpoint.h"
#include "transport/secret_key.h"

namespace coprime {

using WorldId = std::array<std::byte, 16>;  // names a world; no secret
WorldId make_world_id();

// Who this rank is, and how it proves it. The key is the operator's (--key-file), or one that the front made for a
// world that never leaves its host.
struct Membership {
  int rank = 0, ranks = 1;
  WorldId world = {};
  SecretKey key;
  uint32_t epoch = 1;  // grows when the links of a world are rebuilt: members of different epochs do not meet
};

struct MeshConnection {
  UniqueFd socket;                       // non-blocking; empty for this rank and for ranks that are not its peers
  std::optional<SecretKey> session_key;  // both ends have the same, and nobody else
};

// Connects to every rank that has a bit in `peers` (this rank's own is ignored; the peers must have this rank's bit).
// endpoints[r] is rank r's, and listens already. Element r of the result is rank r's connection. Error(kLink) naming
// the ranks that are missing after timeout_ms and why, or at once when one refuses or is not there. `look` is called
// again and again, every 20 ms at least, and ends it by throwing.
std::vector<MeshConnection> connect_mesh(const Listener& listener, std::span<const Endpoint> endpoints, uint32_t peers,
                                         const Membership& me, int timeout_ms, const std::function<void()>& look);

}  // namespace coprime
