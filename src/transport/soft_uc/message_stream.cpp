#include "transport/soft_uc/message_stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

MessageStream::MessageStream(UniqueFd socket, size_t max_message_bytes)
    : socket_(std::move(socket)),
      max_message_bytes_(max_message_bytes),
      staging_bytes_(sizeof(Header) + max_message_bytes + kReadAheadBytes),
      staging_(std::make_unique_for_overwrite<std::byte[]>(staging_bytes_)) {
  static_assert(sizeof(Header) == 32);
  COPRIME_CHECK(max_message_bytes <= UINT32_MAX, "messages of {} bytes", max_message_bytes);
  int type = 0;
  socklen_t length = sizeof type;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_TYPE, &type, &length) != 0) {
    fail(ErrorKind::kLink, "a software queue pair needs a stream socket: {}", errno_text(errno));
  }
  if (type != SOCK_STREAM) {
    fail(ErrorKind::kLink, "a software queue pair needs a stream socket, this one is of type {}", type);
  }
  set_nonblocking(socket_.get());
  set_no_delay(socket_.get());
}

bool MessageStream::send(std::span<const std::byte> payload, uint32_t tag) {
  if (sent_ == 0) {
    sending_ = {kMagic, static_cast<uint32_t>(payload.size()), messages_sent_ + 1, now_us(), tag, 0};
  }
  const size_t total = sizeof sending_ + payload.size();
  while (sent_ < total && !sends_vanish_) {
    const size_t of_header = std::min(sent_, sizeof sending_), of_payload = sent_ - of_header;
    iovec parts[2] = {
        {reinterpret_cast<std::byte*>(&sending_) + of_header, sizeof sending_ - of_header},
        {const_cast<std::byte*>(payload.data()) + of_payload, payload.size() - of_payload},
    };
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      sent_ += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return false;
    } else if (errno != EINTR) {
      sends_vanish_ = true;
    }
  }
  sent_ = 0;
  ++messages_sent_;
  return true;
}

std::optional<MessageStream::Message> MessageStream::receive() {
  while (failure_.empty()) {
    Header header;
    if (end_ - begin_ >= sizeof header) {
      std::memcpy(&header, staging_.get() + begin_, sizeof header);
      if (refuses(header)) break;
      if (end_ - begin_ >= sizeof header + header.bytes) {
        const std::span<const std::byte> payload(staging_.get() + begin_ + sizeof header, header.bytes);
        begin_ += sizeof header + header.bytes;
        ++messages_received_;
        return Message{payload, header.sent_us, header.tag};
      }
    }
    if (!read_more()) break;
  }
  return std::nullopt;
}

bool MessageStream::read_more() {
  if (std::exchange(drained_, false) || ended_) return false;
  if (begin_ > 0) {  // what is left is less than a message
    std::memmove(staging_.get(), staging_.get() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  const size_t room = staging_bytes_ - end_;
  ssize_t got;
  do {
    got = ::recv(socket_.get(), staging_.get() + end_, room, MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  if (got > 0) {
    end_ += static_cast<size_t>(got);
    drained_ = static_cast<size_t>(got) < room;
    return true;
  }
  if (got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) ended_ = true;
  return false;
}

bool MessageStream::refuses(const Header& header) {
  if (header.magic != kMagic) {
    failure_ = fmt::format("sent what is no message (it begins with {:#010x})", header.magic);
  } else if (header.number != messages_received_ + 1) {
    failure_ = fmt::format("sent message {} where message {} comes", header.number, messages_received_ + 1);
  } else if (header.bytes > max_message_bytes_) {
    failure_ =
        fmt::format("sent {} bytes in one message where at most {} are allowed", header.bytes, max_message_bytes_);
  }
  return !failure_.empty();
}

}  // namespace coprime
