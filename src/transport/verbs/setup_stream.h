// The conversation of two ranks over a stream socket while they set up a verbs pair: steps that both take in the same
// order, each sending one frame and waiting for the peer's of the same kind and attempt. A frame has 256 bytes:
// {magic, version, kind, rank, attempt} and a payload, little-endian. The last frame of each is its verdict, which may
// come in place of any step: nothing, or why this rank gives up. When both verdicts are through, the socket is as
// before.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>

namespace coprime {

enum class SetupStep : uint16_t { kInfo = 1, kReady = 2, kPosted = 3, kWarm = 4, kVerdict = 5 };

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

  // Ends the conversation. `refusal`: empty, or why this rank gives up. Returns what both know then: empty if neither
  // gave up, else its own refusal, or the peer's. Error(kLink) as of a step; not after one of those.
  std::string conclude(const std::string& refusal);

  // Whether the peer is gone, silent or not understood: the conversation cannot be concluded.
  bool broken() const { return broken_; }

 private:
  static constexpr uint32_t kMagic = 0x42524556;  // "VERB"
  static constexpr uint16_t kVersion = 2;
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
  void check_origin(const Frame& frame) const;
  bool note_verdict(const Frame& frame);  // whether it is one
  void send_frame(const Frame& frame, SetupStep step, int timeout_ms);
  void receive_frame(Frame& frame, SetupStep step, int timeout_ms);

  int socket_fd_, rank_, peer_, timeout_ms_;
  bool broken_ = false;
  std::optional<std::string> verdict_;  // the peer's
};

}  // namespace coprime
