// From a context to a pair that carries messages: addresses are swapped over the socket, then a message goes each way.
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"
#include "transport/ucx/ucx.h"
#include "transport/ucx/ucx_queue_pair.h"

namespace coprime {
namespace {

constexpr uint32_t kMagic = 0x41584355;  // "UCXA"
constexpr uint32_t kMaxAddressBytes = 1 << 20;
constexpr std::byte kReady{0x52};

struct Head {
  uint32_t magic, rank, bytes;
};

// Moves all bytes by `call`, ::send or ::recv.
template <class Call, class Byte>
void move_all(Call&& call, int fd, std::span<Byte> bytes, short event, int64_t deadline_us) {
  while (!bytes.empty()) {
    const ssize_t count = call(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_for_events(fd, event, deadline_us))
        fail(ErrorKind::kLink, "the peer says nothing; check that its process is alive");
    } else if (count == 0 || errno != EINTR) {
      fail(ErrorKind::kLink, "the peer closed the connection{}; its own message says why",
           count == 0 ? std::string() : fmt::format(" ({})", errno_text(errno)));
    }
  }
}
void send_all(int fd, std::span<const std::byte> bytes, int64_t deadline_us) {
  move_all(::send, fd, bytes, POLLOUT, deadline_us);
}
void receive_all(int fd, std::span<std::byte> bytes, int64_t deadline_us) {
  move_all(::recv, fd, bytes, POLLIN, deadline_us);
}

std::vector<std::byte> swap_addresses(int fd, std::span<const std::byte> own, int rank, int peer, int64_t deadline_us) {
  Head head{kMagic, static_cast<uint32_t>(rank), static_cast<uint32_t>(own.size())};
  send_all(fd, std::as_bytes(std::span(&head, 1)), deadline_us);
  send_all(fd, own, deadline_us);
  receive_all(fd, std::as_writable_bytes(std::span(&head, 1)), deadline_us);
  if (head.magic != kMagic || head.rank != static_cast<uint32_t>(peer) || head.bytes > kMaxAddressBytes) {
    fail(ErrorKind::kLink,
         "what came is no UCX address of rank {} (magic {:#010x}, rank {}, {} bytes): run the same program on both",
         peer, head.magic, head.rank, head.bytes);
  }
  std::vector<std::byte> address(head.bytes);
  receive_all(fd, address, deadline_us);
  return address;
}

// A message each way, and a word beside them that it is there: until then the other end may need this one's polling.
void warm_up(UcxQueuePair& pair, int fd, int64_t deadline_us) {
  std::array<std::byte, 2> memory{kReady, std::byte{0}};
  const WorkRequest receive{.data = &memory[1], .bytes = 1}, send{.data = &memory[0], .bytes = 1};
  pair.post_recv({&receive, 1});
  pair.post_send({&send, 1});
  int complete = 0;
  bool told = false;
  while (true) {
    std::array<Completion, 2> completions;
    complete += pair.poll(completions);
    if (complete == 2 && !told) {
      send_all(fd, {&kReady, 1}, deadline_us);
      told = true;
    }
    std::byte word;
    if (told && ::recv(fd, &word, 1, MSG_DONTWAIT) == 1) break;
    if (!pair.failure().empty()) fail(ErrorKind::kLink, "the peer {}", pair.failure());
    if (now_us() > deadline_us || is_closed(fd)) {
      fail(ErrorKind::kLink,
           "no message goes both ways; check UCX_TLS and UCX_NET_DEVICES on both hosts, or use --link "
           "auto");
    }
    wait_for_events(fd, POLLIN, now_us() + 1000);
  }
  if (memory[1] != kReady) fail(ErrorKind::kLink, "a message arrived with other content than was sent");
}

}  // namespace

std::unique_ptr<QueuePair> connect_ucx(std::shared_ptr<UcxContext> context, UniqueFd socket, uint32_t epoch, int rank,
                                       int peer, int timeout_ms) {
  const int64_t deadline_us = now_us() + int64_t{timeout_ms} * 1000;
  try {
    auto pair = std::make_unique<UcxQueuePair>(std::move(context));
    pair->connect(swap_addresses(socket.get(), pair->address(), rank, peer, deadline_us));
    warm_up(*pair, socket.get(), deadline_us);
    pair->begin(std::move(socket), epoch);
    return pair;
  } catch (const Error& error) {
    fail(error.kind(), "ucx link to rank {}: {}", peer, error.what());
  }
}

}  // namespace coprime
