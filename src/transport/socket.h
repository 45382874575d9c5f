// Small helpers on stream sockets.
#pragma once

#include <cstdint>

namespace coprime {

// Error(kLink) when the descriptor refuses.
void set_nonblocking(int fd);
void set_no_delay(int fd);  // no effect on a socket that is not TCP

// Whether the other end of a connection has closed it or is gone, looking without taking anything.
bool is_closed(int fd);

// poll(2) on one descriptor, restarted after signals. Whether an event came before the deadline (a time of now_us();
// negative: none).
bool wait_for_events(int fd, short events, int64_t deadline_us);

// A time of now_us() as a poll(2) timeout: rounded up, never negative; -1 for a negative time.
int poll_timeout_ms(int64_t deadline_us);

}  // namespace coprime
