#include "transport/verbs/setup_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

const char* step_text(SetupStep step) {
  switch (step) {
    case SetupStep::kInfo:
      return "the exchange of addresses";
    case SetupStep::kReady:
      return "the ready barrier";
    case SetupStep::kPosted:
      return "the warm-up's first barrier";
    case SetupStep::kWarm:
      return "the warm-up";
    case SetupStep::kVerdict:
      break;
  }
  return "the verdict";
}

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

}  // namespace

SetupStream::Frame SetupStream::frame_of(SetupStep step, int attempt) const {
  return {.magic = kMagic,
          .version = kVersion,
          .kind = static_cast<uint16_t>(step),
          .rank = static_cast<uint32_t>(rank_),
          .attempt = static_cast<uint32_t>(attempt),
          .payload = {}};
}

void SetupStream::swap_frames(SetupStep step, int attempt, Frame& frame, int timeout_ms) {
  const std::array<char, kPayloadBytes> payload = frame.payload;
  frame = frame_of(step, attempt);
  frame.payload = payload;
  broken_ = true;  // until the peer has answered well
  send_frame(frame, step, timeout_ms);
  receive_frame(frame, step, timeout_ms);
  check_origin(frame);
  if (note_verdict(frame)) {
    broken_ = false;
    fail(ErrorKind::kLink, "rank {} gave up: {}", peer_, *verdict_);
  }
  if (frame.kind != static_cast<uint16_t>(step) || frame.attempt != static_cast<uint32_t>(attempt)) {
    fail(ErrorKind::kLink,
         "in {} the peer is at step {} of attempt {}, not at step {} of attempt {}: start both ranks anew",
         step_text(step), frame.kind, frame.attempt, static_cast<int>(step), attempt);
  }
  broken_ = false;
}

void SetupStream::check_origin(const Frame& frame) const {
  if (frame.magic != kMagic) {
    fail(ErrorKind::kLink,
         "the peer sent what belongs to no verbs setup (it begins with {:#010x}): start both ranks anew", frame.magic);
  }
  if (frame.version != kVersion) {
    fail(ErrorKind::kLink, "the peer's verbs setup has version {} and ours {}: run the same program on both",
         frame.version, kVersion);
  }
  if (frame.rank != static_cast<uint32_t>(peer_)) {
    fail(ErrorKind::kLink, "rank {} answered where rank {} was expected: start both ranks anew", frame.rank, peer_);
  }
}

bool SetupStream::note_verdict(const Frame& frame) {
  if (frame.kind != static_cast<uint16_t>(SetupStep::kVerdict)) return false;
  verdict_.emplace(frame.payload.begin(), std::ranges::find(frame.payload, '\0'));
  std::ranges::replace_if(
      *verdict_, [](char c) { return c < ' ' || c > '~'; }, '?');
  return true;
}

// A peer that gave up closed its end, but its reason may still lie in the socket: receive_frame() finds out which.
void SetupStream::send_frame(const Frame& frame, SetupStep step, int timeout_ms) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&frame);
  const int64_t deadline_us = now_us() + 1000ll * timeout_ms;
  for (size_t sent = 0; sent < sizeof frame;) {
    const ssize_t count = ::send(socket_fd_, bytes + sent, sizeof frame - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return;
    } else if (would_block(errno)) {
      if (wait_for_events(socket_fd_, POLLOUT, deadline_us)) continue;
      fail(ErrorKind::kLink, "{}: the peer read nothing for {} ms; check that its process is alive", step_text(step),
           timeout_ms);
    } else if (errno != EINTR) {
      fail(ErrorKind::kLink, "{}: sending failed: {}; check the network between the ranks", step_text(step),
           errno_text(errno));
    }
  }
}

void SetupStream::receive_frame(Frame& frame, SetupStep step, int timeout_ms) {
  auto* const bytes = reinterpret_cast<std::byte*>(&frame);
  const int64_t deadline_us = now_us() + 1000ll * timeout_ms;
  for (size_t received = 0; received < sizeof frame;) {
    const ssize_t count = ::recv(socket_fd_, bytes + received, sizeof frame - received, MSG_DONTWAIT);
    if (count > 0) {
      received += static_cast<size_t>(count);
    } else if (count == 0) {
      fail(ErrorKind::kLink, "{}: the peer closed the connection; its own message says why", step_text(step));
    } else if (would_block(errno)) {
      if (wait_for_events(socket_fd_, POLLIN, deadline_us)) continue;
      fail(ErrorKind::kLink, "{}: the peer said nothing for {} ms; check that its process is alive, or wait longer",
           step_text(step), timeout_ms);
    } else if (errno != EINTR) {
      fail(ErrorKind::kLink, "{}: the peer closed the connection ({}); its own message says why", step_text(step),
           errno_text(errno));
    }
  }
}

std::string SetupStream::conclude(const std::string& refusal) {
  Frame frame = frame_of(SetupStep::kVerdict, 0);
  std::memcpy(frame.payload.data(), refusal.data(), std::min(refusal.size(), frame.payload.size() - 1));
  broken_ = true;
  send_frame(frame, SetupStep::kVerdict, timeout_ms_);
  // A peer that did not know yet has sent one frame of the step that it was in.
  for (int skipped = 0; !verdict_ && skipped < 2; ++skipped) {
    receive_frame(frame, SetupStep::kVerdict, timeout_ms_);
    check_origin(frame);
    note_verdict(frame);
  }
  if (!verdict_) fail(ErrorKind::kLink, "the verdict: the peer went on with the setup: start both ranks anew");
  broken_ = false;
  if (!refusal.empty() || verdict_->empty()) return refusal;
  return fmt::format("rank {} gave up: {}", peer_, *verdict_);
}

}  // namespace coprime
