// Messages over a stream socket, whole and in order. A frame is a header of 32 bytes {magic, bytes, number, sent_us,
// tag}, little-endian, and the payload; each end numbers its messages from 1. Bytes that are no such frame, or one
// longer than the cap, end the stream before any of it is used.
//
// A peer that is gone shows nowhere: what is sent to it vanishes, and nothing more arrives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace coprime {

class MessageStream {
 public:
  // Makes the socket non-blocking. Error(kLink) when it is no stream socket.
  MessageStream(UniqueFd socket, size_t max_message_bytes);

  // Moves what the socket takes of the message in hand; true when all of it has left. Until then the next call must
  // bring the same message.
  bool send(std::span<const std::byte> payload, uint32_t tag);

  struct Message {
    std::span<const std::byte> payload;  // valid until the next call
    int64_t sent_us = 0;                 // by the clock of now_us()
    uint32_t tag = 0;
  };
  std::optional<Message> receive();  // empty: nothing more for now

  int fd() const { return socket_.get(); }
  bool ended() const { return ended_; }                    // nothing will be received any more
  const std::string& failure() const { return failure_; }  // to be read after "rank 2 "

 private:
  struct Header {
    uint32_t magic, bytes;
    uint64_t number;
    int64_t sent_us;
    uint32_t tag, reserved;
  };
  static constexpr uint32_t kMagic = 0x55544653;  // "SFTU"
  static constexpr size_t kReadAheadBytes = 256 * 1024;

  bool read_more();  // whether bytes came
  bool refuses(const Header& header);

  UniqueFd socket_;
  size_t max_message_bytes_;
  bool sends_vanish_ = false, ended_ = false;
  std::string failure_;

  Header sending_ = {};
  size_t sent_ = 0;  // of the message in hand, header and payload
  uint64_t messages_sent_ = 0, messages_received_ = 0;

  size_t staging_bytes_;
  std::unique_ptr<std::byte[]> staging_;
  size_t begin_ = 0, end_ = 0;  // of what is read and not yet used
  bool drained_ = false;        // the last read took all that there was
};

}  // namespace coprime
