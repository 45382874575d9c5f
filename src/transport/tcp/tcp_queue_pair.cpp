#include "transport/tcp/tcp_queue_pair.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

TcpQueuePair::TcpQueuePair(UniqueFd socket, uint32_t epoch)
    : socket_(std::move(socket)), epoch_(epoch), staging_(kStagingBytes) {
  static_assert(sizeof(FrameHeader) == 32);
  set_nonblocking(socket_.get());
  set_no_delay(socket_.get());
}

void TcpQueuePair::Queue::post(const WorkRequest& request) {
  COPRIME_CHECK(posted - told < kMaxOutstanding, "{} requests are outstanding", posted - told);
  slots[posted++ % kMaxOutstanding] = request;
}

int TcpQueuePair::Queue::tell(Completion::Kind kind, std::span<Completion> completions) {
  int count = 0;
  while (told < done && count < static_cast<int>(completions.size())) {
    const WorkRequest& request = slots[told++ % kMaxOutstanding];
    completions[static_cast<size_t>(count++)] = {
        .kind = kind, .id = request.id, .bytes = request.bytes, .tag = request.tag};
  }
  return count;
}

void TcpQueuePair::fail_pair(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void TcpQueuePair::post_recv(std::span<const WorkRequest> chain) {
  if (!failure_.empty()) return;
  for (const WorkRequest& request : chain) receives_.post(request);
}

// Sends at once what the socket takes.
void TcpQueuePair::post_send(std::span<const WorkRequest> chain) {
  if (!failure_.empty()) return;
  for (const WorkRequest& request : chain) sends_.post(request);
  move_sends();
}

int TcpQueuePair::poll(std::span<Completion> completions) {
  if (!failure_.empty()) return 0;
  move_sends();
  move_receives();
  int count = sends_.tell(Completion::Kind::kSend, completions);
  count += receives_.tell(Completion::Kind::kReceive, completions.subspan(static_cast<size_t>(count)));
  // The peer is gone, but what it sent before is still delivered first.
  if (count == 0 && send_broken_) fail_pair("closed the connection");
  return count;
}

pollfd TcpQueuePair::wait_on() const {
  const int events = (receives_.idle() ? 0 : POLLIN) | (sends_.idle() ? 0 : POLLOUT);
  return {.fd = events == 0 ? -1 : socket_.get(), .events = static_cast<short>(events), .revents = 0};
}

void TcpQueuePair::move_sends() {
  while (!sends_.idle() && !send_broken_) {
    const WorkRequest& request = sends_.current();
    if (sent_ == 0) send_header_ = {kMagic, epoch_, sends_.done + 1, request.bytes, request.tag, 0};
    const ssize_t sent = send_some(request);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) send_broken_ = true;
      return;
    }
    sent_ += static_cast<size_t>(sent);
    bytes_moved_ += static_cast<size_t>(sent);
    if (sent_ == sizeof send_header_ + request.bytes) {
      sent_ = 0;
      sends_.complete();
    }
  }
}

ssize_t TcpQueuePair::send_some(const WorkRequest& request) {
  if (sent_ == 0 && request.headroom >= sizeof send_header_) {
    std::byte* const frame = request.data - sizeof send_header_;
    std::memcpy(frame, &send_header_, sizeof send_header_);
    return ::send(socket_.get(), frame, sizeof send_header_ + request.bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  const size_t of_header = std::min(sent_, sizeof send_header_), of_payload = sent_ - of_header;
  iovec parts[2] = {{reinterpret_cast<std::byte*>(&send_header_) + of_header, sizeof send_header_ - of_header},
                    {request.data + of_payload, request.bytes - of_payload}};
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void TcpQueuePair::move_receives() {
  const uint64_t done_before = receives_.done;
  // The socket is not asked again when there is something to tell: mostly it would have nothing.
  while (use_staged() && receives_.done == done_before) {
    const WorkRequest& request = receives_.current();
    const size_t frame_left = in_frame_ ? frame_bytes_ - frame_received_ : 0;
    const bool direct = frame_left > kStagingBytes / 2;
    const bool whole = !in_frame_ && staged_begin_ == staged_end_ && request.headroom >= sizeof(FrameHeader);
    std::byte* to = nullptr;
    size_t room = 0;
    if (direct) {
      to = request.data + frame_received_;
      room = frame_left;
    } else if (whole) {
      to = request.data - sizeof(FrameHeader);
      room = std::min(request.bytes + sizeof(FrameHeader), kStagingBytes);
    } else {
      if (staged_begin_ > 0) {  // what is left is less than a header
        std::memmove(staging_.data(), staging_.data() + staged_begin_, staged_end_ - staged_begin_);
        staged_end_ -= std::exchange(staged_begin_, 0);
      }
      to = staging_.data() + staged_end_;
      room = kStagingBytes - staged_end_;
    }
    const ssize_t got = ::recv(socket_.get(), to, room, MSG_DONTWAIT);
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK)
        fail_pair(fmt::format("closed the connection ({})", errno_text(errno)));
      return;
    }
    if (got == 0) {
      fail_pair(in_frame_ ? "closed the connection in the middle of a message" : "closed the connection");
      return;
    }
    bytes_moved_ += static_cast<size_t>(got);
    if (direct) {
      advance_frame(static_cast<size_t>(got));
    } else if (whole) {
      use_frame_start(to, static_cast<size_t>(got));
    } else {
      staged_end_ += static_cast<size_t>(got);
    }
  }
}

// The payload lies where it belongs already. What comes before a whole header, or behind a payload that is shorter than
// its receive, goes to the staging area, which is empty.
void TcpQueuePair::use_frame_start(const std::byte* bytes, size_t count) {
  FrameHeader header;
  size_t used = 0;
  if (count >= sizeof header) {
    std::memcpy(&header, bytes, sizeof header);
    if (!accept_frame(header)) return;
    const size_t payload = std::min(count - sizeof header, header.bytes);
    if (payload > 0) advance_frame(payload);
    used = sizeof header + payload;
  }
  staged_begin_ = 0;
  staged_end_ = count - used;
  std::memcpy(staging_.data(), bytes + used, staged_end_);
}

bool TcpQueuePair::use_staged() {
  while (failure_.empty() && (in_frame_ || !receives_.idle())) {
    const size_t staged = staged_end_ - staged_begin_;
    if (!in_frame_) {
      FrameHeader header;
      if (staged < sizeof header) return true;
      std::memcpy(&header, staging_.data() + staged_begin_, sizeof header);
      if (!accept_frame(header)) return false;
      staged_begin_ += sizeof header;
      continue;
    }
    if (staged == 0) return true;
    const size_t count = std::min(staged, frame_bytes_ - frame_received_);
    std::memcpy(receives_.current().data + frame_received_, staging_.data() + staged_begin_, count);
    staged_begin_ += count;
    advance_frame(count);
  }
  return false;
}

bool TcpQueuePair::accept_frame(const FrameHeader& header) {
  WorkRequest& request = receives_.current();
  if (header.magic != kMagic) {
    fail_pair(fmt::format("sent what is no gate's message (it begins with {:#010x})", header.magic));
  } else if (header.epoch != epoch_) {
    fail_pair(fmt::format("sent a message of epoch {} in epoch {}", header.epoch, epoch_));
  } else if (header.number != receives_.done + 1) {
    fail_pair(fmt::format("sent message {} where message {} comes", header.number, receives_.done + 1));
  } else if (header.bytes > request.bytes) {
    fail_pair(fmt::format("sent {} bytes where there is room for {}", header.bytes, request.bytes));
  } else {
    in_frame_ = true;
    frame_bytes_ = header.bytes;
    frame_received_ = 0;
    request.bytes = header.bytes;
    request.tag = header.tag;
    advance_frame(0);
    return true;
  }
  return false;
}

void TcpQueuePair::advance_frame(size_t count) {
  frame_received_ += count;
  if (frame_received_ < frame_bytes_) return;
  in_frame_ = false;
  receives_.complete();
}

}  // namespace coprime
