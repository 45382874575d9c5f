#include "transport/channel.h"

#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {

Channel::Channel(UniqueFd socket) : socket_(std::move(socket)) {
  set_nonblocking(socket_.get());
  set_no_delay(socket_.get());
}

std::pair<Channel, Channel> Channel::make_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(ErrorKind::kLink, "a control channel cannot be made: {}", errno_text(errno));
  }
  UniqueFd first(ends[0]), second(ends[1]);
  return {Channel(std::move(first)), Channel(std::move(second))};
}

void Channel::send(uint32_t type, std::span<const std::byte> bytes) {
  if (bytes.size() > kMaxMessageBytes) {
    fail(ErrorKind::kLink, "a control message of {} bytes is longer than the {} that there may be", bytes.size(),
         kMaxMessageBytes);
  }
  uint32_t header[2] = {static_cast<uint32_t>(bytes.size()), type};
  static_assert(sizeof header == kHeaderBytes);
  iovec parts[2] = {{header, sizeof header}, {const_cast<std::byte*>(bytes.data()), bytes.size()}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = bytes.empty() ? 1 : 2;
  while (message.msg_iovlen > 0) {
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        fail(ErrorKind::kLink, "the control channel is broken: {}", errno_text(errno));
      }
      if (!wait_for_events(socket_.get(), POLLOUT, now_us() + int64_t{kSendTimeoutMs} * 1000)) {
        fail(ErrorKind::kLink, "the other end of the control channel has taken nothing for {} ms", kSendTimeoutMs);
      }
      continue;
    }
    auto left = static_cast<size_t>(sent);
    while (message.msg_iovlen > 0 && left >= message.msg_iov->iov_len) {
      left -= message.msg_iov->iov_len;
      ++message.msg_iov;
      --message.msg_iovlen;
    }
    if (message.msg_iovlen > 0) {
      message.msg_iov->iov_base = static_cast<std::byte*>(message.msg_iov->iov_base) + left;
      message.msg_iov->iov_len -= left;
    }
  }
}

// Reads what is there of the current frame. kNothing: nothing more for now.
Channel::Progress Channel::read_some() {
  while (true) {
    const bool in_header = received_ < kHeaderBytes;
    std::byte* const to = in_header ? header_ + received_ : partial_.bytes.data() + (received_ - kHeaderBytes);
    const size_t wanted = in_header ? kHeaderBytes - received_ : partial_.bytes.size() - (received_ - kHeaderBytes);
    const ssize_t got = ::recv(socket_.get(), to, wanted, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Progress::kNothing;
      return Progress::kClosed;  // a reset: the other end died with bytes of ours unread
    }
    if (got == 0) return Progress::kClosed;
    received_ += static_cast<size_t>(got);
    if (in_header && received_ == kHeaderBytes) {
      uint32_t bytes;
      std::memcpy(&bytes, header_, 4);
      std::memcpy(&partial_.type, header_ + 4, 4);
      if (bytes > kMaxMessageBytes) {
        fail(ErrorKind::kLink, "a control message claims {} bytes, more than the {} that there may be", bytes,
             kMaxMessageBytes);
      }
      partial_.bytes.resize(bytes);
    }
    if (received_ >= kHeaderBytes && received_ == kHeaderBytes + partial_.bytes.size()) {
      received_ = 0;
      return Progress::kComplete;
    }
  }
}

Channel::Received Channel::receive(Message& into, int timeout_ms, int64_t spin_us) {
  const int64_t start_us = now_us();
  const int64_t deadline_us = timeout_ms < 0 ? -1 : start_us + int64_t{timeout_ms} * 1000;
  while (true) {
    switch (read_some()) {
      case Progress::kComplete:
        std::swap(into, partial_);
        partial_.bytes.clear();
        return Received::kMessage;
      case Progress::kClosed:
        return Received::kClosed;
      case Progress::kNothing:
        break;
    }
    const int64_t time_us = now_us();
    if (deadline_us >= 0 && time_us >= deadline_us) return Received::kTimeout;
    if (time_us < start_us + spin_us) {
      ::sched_yield();
    } else if (!wait_for_events(socket_.get(), POLLIN, deadline_us)) {
      return Received::kTimeout;
    }
  }
}

}  // namespace coprime
