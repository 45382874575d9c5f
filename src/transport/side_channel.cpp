#include "transport/side_channel.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "transport/socket.h"

namespace coprime {

SideChannel::SideChannel(UniqueFd socket) : socket_(std::move(socket)) {
  static_assert(sizeof(Frame) == 32);
  set_nonblocking(socket_.get());
  set_no_delay(socket_.get());
}

void SideChannel::fail(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void SideChannel::send(const Barrier& barrier) {
  const Frame frame = {kMagic, barrier.kind, barrier.place, 0, barrier.sequence, barrier.bytes};
  const auto* bytes = reinterpret_cast<const std::byte*>(&frame);
  unsent_.insert(unsent_.end(), bytes, bytes + sizeof frame);
  flush();
}

void SideChannel::flush() {
  while (!unsent_.empty() && failure_.empty()) {
    const ssize_t sent = ::send(socket_.get(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) return fail(fmt::format("closed the connection ({})", errno_text(errno)));
    unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
  }
}

std::optional<Barrier> SideChannel::receive() {
  flush();
  while (failure_.empty()) {
    const ssize_t got = ::recv(socket_.get(), partial_.data() + received_, partial_.size() - received_, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::nullopt;
    if (got <= 0) {
      fail(got == 0 ? "closed the connection" : fmt::format("closed the connection ({})", errno_text(errno)));
      return std::nullopt;
    }
    received_ += static_cast<size_t>(got);
    if (received_ < partial_.size()) continue;
    received_ = 0;
    Frame frame;
    std::memcpy(&frame, partial_.data(), sizeof frame);
    if (frame.magic != kMagic) {
      fail(fmt::format("sent what is no barrier (it begins with {:#010x})", frame.magic));
      return std::nullopt;
    }
    return Barrier{frame.kind, frame.place, frame.sequence, frame.bytes};
  }
  return std::nullopt;
}

bool SideChannel::peer_closed() {
  flush();
  if (!failure_.empty()) return true;
  std::byte byte;
  const ssize_t got = ::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))) return false;
  fail("closed the connection");
  return true;
}

pollfd SideChannel::wait_on() const {
  return {.fd = socket_.get(), .events = static_cast<short>(POLLIN | (unsent_.empty() ? 0 : POLLOUT)), .revents = 0};
}

}  // namespace coprime
