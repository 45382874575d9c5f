// The conversation of two ranks over a stream socket while they set up a verbs pair: steps that both take in the same
// order, each sending one frame and waiting for the peer's of the same kind and attempt. A frame has 256 bytes:
// {magic, version, kind, rank, attempt} and a payload, little-endian. A rank that gives up says why in its last frame.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

namespace coprime {

enum class SetupStep : uint16_t { kInfo = 1, kReady = 2, kPosted = 3, kWarm = 4, kRefused = 5 };

class SetupStream {
 public:
  // timeout_ms bounds each wait for the peer. The socket is lent, and may be blocking or not.
  SetupStream(int socket_fd, int rank, int peer, int timeout_ms)
      : socket_fd_(socket_fd), rank_(rank), peer_(peer), timeout_ms_(timeout_ms) {}

  // extra_ms: how much later than this rank the peer may come to the step. Error(kLink) when the peer closes, says
  // nothing, gives up, or sends what does not belong here.
  template <class Payload>
  Payload swap(SetupStep step, int attempt, const Payload& ours, int extra_ms = 0) {
    static_assert(std::is_trivially_copyable_v<Payload> && sizeof(Payload) <= kPayloadBytes);
    Frame frame = {};
    std::memcpy(frame.payload.data(), &ours, sizeof ours);
    swap_frames(step, attempt, frame, timeout_ms_ + extra_ms);
    Payload theirs;
    std::memcpy(&theirs, frame.payload.data(), sizeof theirs);
    return theirs;
  }

  // Tells the peer why this rank gives up, unless the conversation itself has failed. Takes the peer's frame of the
  // step first or waits for it (a second at most): a socket closed with unread bytes would lose the reason on its way.
  void refuse(const std::string& reason);

 private:
  static constexpr uint32_t kMagic = 0x42524556;  // "VERB"
  static constexpr uint16_t kVersion = 1;
  static constexpr size_t kPayloadBytes = 240;
  struct Frame {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t rank, attempt;
    std::array<char, kPayloadBytes> payload;
  };
  static_assert(sizeof(Frame) == 256);

  void swap_frames(SetupStep step, int attempt, Frame& frame, int timeout_ms);  // ours becomes the peer's
  Frame frame_of(SetupStep step, int attempt) const;
  void check(const Frame& frame, SetupStep step, int attempt);
  void send_frame(const Frame& frame, SetupStep step, int timeout_ms);
  void receive_frame(Frame& frame, SetupStep step, int timeout_ms);

  int socket_fd_, rank_, peer_, timeout_ms_;
  bool over_ = false;  // the peer gave up, is gone, or is not understood
};

}  // namespace coprime
