// Framed messages over a connected stream socket, for control between the front and a rank. Bounded in size, never on
// the path of a gate. One thread may send while another receives.
//
// A frame is a u32 length and a u32 type, little-endian, then the bytes. A message that arrives in pieces survives
// receives that time out between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace coprime {

struct Message {
  uint32_t type = 0;
  std::vector<std::byte> bytes;
};

class Channel {
 public:
  static constexpr size_t kMaxMessageBytes = size_t{1} << 30;
  static constexpr int kSendTimeoutMs = 30'000;

  explicit Channel(UniqueFd socket);
  static std::pair<Channel, Channel> make_pair();  // descriptors close on exec unless the caller clears FD_CLOEXEC

  // Error(kLink) when the other end is closed (no SIGPIPE), or takes nothing for kSendTimeoutMs.
  void send(uint32_t type, std::span<const std::byte> bytes);

  // kClosed: the other end is closed or gone and every whole message was received. timeout_ms < 0 waits for ever. For
  // the first spin_us it polls and yields instead of sleeping. Error(kLink) for a frame longer than kMaxMessageBytes.
  // The capacity of `into` is used again.
  enum class Received { kMessage, kTimeout, kClosed };
  Received receive(Message& into, int timeout_ms, int64_t spin_us = 0);

  int fd() const { return socket_.get(); }

 private:
  static constexpr size_t kHeaderBytes = 8;
  enum class Progress { kComplete, kNothing, kClosed };
  Progress read_some();

  UniqueFd socket_;
  std::byte header_[kHeaderBytes] = {};
  size_t received_ = 0;  // of the header, then of the bytes
  Message partial_;
};

}  // namespace coprime
