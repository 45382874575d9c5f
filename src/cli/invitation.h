// What the front of a launched world tells the ranks of other processes, by PMIx: where it listens, and the world's
// key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/endpoint.h"
#include "transport/secret_key.h"

namespace coprime {

struct Invitation {
  std::string key;                     // in hexadecimal
  int port = 0;                        // on all addresses of IPv4
  std::string host;                    // host_identity()
  std::vector<std::string> addresses;  // of its host, but for the loopback
};

// This host's; Error(kInternal) where the system does not tell its addresses.
Invitation make_invitation(const SecretKey& key, int port);

std::string to_text(const Invitation& invitation);
Invitation invitation_from_text(const std::string& text);  // Error(kLink)

// Where this process reaches the front: the loopback on the same host, else the first address that takes a connection.
// Error(kLink) naming all that were tried, after two rounds.
Endpoint reachable(const Invitation& invitation);

}  // namespace coprime
