#include "transport/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {

void set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    fail(ErrorKind::kLink, "descriptor {} cannot be made non-blocking: {}", fd, errno_text(errno));
  }
}

void set_no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool is_closed(int fd) {
  char byte;
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

int poll_timeout_ms(int64_t deadline_us) {
  if (deadline_us < 0) return -1;
  const int64_t left_us = std::max<int64_t>(deadline_us - now_us(), 0);
  return static_cast<int>(std::min<int64_t>((left_us + 999) / 1000, 1'000'000'000));
}

bool wait_for_events(int fd, short events, int64_t deadline_us) {
  while (true) {
    pollfd wanted = {.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&wanted, 1, poll_timeout_ms(deadline_us));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail(ErrorKind::kLink, "poll: {}", errno_text(errno));
    if (deadline_us >= 0 && now_us() >= deadline_us) return false;
  }
}

}  // namespace coprime
