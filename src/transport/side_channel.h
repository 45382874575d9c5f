// The reliable stream beside a queue pair: it carries the barriers that order a queue pair's receives before the peer's
// sends, and it is where a peer that is gone shows. One fixed frame of 32 bytes a barrier, little-endian.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace coprime {

// Both ends send the same barrier and compare what they got field by field.
struct Barrier {
  uint32_t kind = 0;      // what is being crossed: 0xD1, 0xB5, 0xB16, ...
  uint32_t place = 0;     // which gate, or which window of a bulk exchange
  uint64_t sequence = 0;  // of the gate, or of the bulk exchange
  uint64_t bytes = 0;     // what each side is about to send, where they must agree; else 0

  bool operator==(const Barrier&) const = default;
};

class SideChannel {
 public:
  explicit SideChannel(UniqueFd socket);  // makes it non-blocking

  // Never blocks: what the socket does not take is kept and sent by the next call of any function.
  void send(const Barrier& barrier);
  std::optional<Barrier> receive();

  // Looks for a closed connection without taking anything: pending bytes mean that the peer is alive.
  bool peer_closed();

  pollfd wait_on() const;

  // Empty while the channel works; else what ended it, to be read after "rank 2 ".
  const std::string& failure() const { return failure_; }

 private:
  struct Frame {
    uint32_t magic, kind, place, reserved;
    uint64_t sequence, bytes;
  };
  static constexpr uint32_t kMagic = 0x52524142;  // "BARR"
  void flush();
  void fail(std::string what);

  UniqueFd socket_;
  std::vector<std::byte> unsent_;
  std::array<std::byte, sizeof(Frame)> partial_ = {};
  size_t received_ = 0;
  std::string failure_;
};

}  // namespace coprime
