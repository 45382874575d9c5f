// Which entry of a port's GID table a pair uses. A GID is what RoCE puts in place of an address; a table holds several,
// and one that does not match how the hosts reach each other makes a pair that carries nothing.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "transport/verbs/verbs_library.h"

namespace coprime {

struct GidChoice {
  uint8_t index = 0;
  ibv_gid gid = {};
};

using IpAddress = std::array<uint8_t, 16>;  // IPv6, or IPv4 mapped: ::ffff:a.b.c.d

// The socket's own address; nothing where it has none (a Unix socket).
std::optional<IpAddress> local_ip_address(int socket_fd);

std::string address_text(const uint8_t* bytes);

// wanted_index >= 0: that entry. Else on InfiniBand entry 0, and elsewhere the entry equal to `local`, or the first
// that is an IPv4 address. RoCE v1 (which no router and few switches carry between hosts), empty entries and indices
// beyond the table are refused by name. Error(kLink) also where the table cannot be read.
GidChoice choose_gid(const VerbsLibrary& library, ibv_context* context, const ibv_port_attr& port, int wanted_index,
                     const std::optional<IpAddress>& local);

}  // namespace coprime
