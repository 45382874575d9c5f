// How the ranks of a world find each other over TCP: every rank listens, the front gives everybody the table of ports,
// and each pair of ranks is joined by one connection, the higher rank dialling the lower.
//
// A connection counts only after both ends have shown the world's token and their ranks. A stranger that knocks is
// dropped and harms nobody. Loopback only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/unique_fd.h"

namespace coprime {

using WorldToken = std::array<std::byte, 16>;
WorldToken make_world_token();  // from the system's random numbers

class MeshListener {
 public:
  // Listens on 127.0.0.1:port, on a free port when it is 0. Error(kLink) when the port is taken.
  static MeshListener open(int rank, uint16_t port);

  int rank() const { return rank_; }
  uint16_t port() const { return port_; }
  int fd() const { return socket_.get(); }

 private:
  MeshListener(int rank, uint16_t port, UniqueFd socket) : rank_(rank), port_(port), socket_(std::move(socket)) {}
  int rank_ = 0;
  uint16_t port_ = 0;
  UniqueFd socket_;
};

// Connects to every rank of the table (ports[r] is rank r's; all must listen already). Returns one non-blocking socket
// a rank; this rank's own is empty. Error(kLink) naming the ranks that are missing after timeout_ms.
std::vector<UniqueFd> connect_mesh(const MeshListener& listener, std::span<const uint16_t> ports,
                                   const WorldToken& token, int timeout_ms);

}  // namespace coprime
