#include "transport/rendezvous.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/progress_page.h"
#include "transport/socket.h"

namespace coprime {
namespace {

constexpr uint32_t kMagic = 0x4853454d;  // "MESH"
constexpr size_t kMaxStrangers = 64;     // connections that have not said who they are

// Sent by the dialling rank, and answered by the listening one: 28 bytes, little-endian.
struct Hello {
  uint32_t magic, from, to;
  WorldToken token;
};
static_assert(sizeof(Hello) == 28);

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

UniqueFd stream_socket() {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail(ErrorKind::kLink, "no socket: {}", errno_text(errno));
  return socket;
}

// Tokens are compared without telling by the time how much of a guess was right.
bool same_token(const WorldToken& a, const WorldToken& b) {
  std::byte difference{0};
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

// A connection on which a Hello is expected.
struct Handshake {
  UniqueFd socket;
  int peer = -1;  // the rank that was dialled; -1: not known yet
  size_t received = 0;
  std::byte bytes[sizeof(Hello)] = {};
};

class Mesh {
 public:
  Mesh(const MeshListener& listener, std::span<const uint16_t> ports, const WorldToken& token)
      : listener_(listener), ports_(ports), token_(token), sockets_(ports.size()) {}

  std::vector<UniqueFd> connect(int64_t deadline_us) {
    for (int peer = 0; peer < listener_.rank(); ++peer) dial(peer, deadline_us);
    while (!missing().empty()) {
      wait(deadline_us);
      accept_all();
      for (Handshake& handshake : handshakes_) read(handshake);
      std::erase_if(handshakes_, [](const Handshake& handshake) { return !handshake.socket; });
    }
    return std::move(sockets_);
  }

 private:
  // "rank 2" or "ranks 2, 3"; empty when all are there.
  std::string missing() const {
    std::string names;
    int count = 0;
    for (size_t peer = 0; peer < sockets_.size(); ++peer) {
      if (sockets_[peer] || static_cast<int>(peer) == listener_.rank()) continue;
      names += fmt::format("{}{}", count++ == 0 ? "" : ", ", peer);
    }
    return count == 0 ? names : fmt::format("rank{} {}", count == 1 ? "" : "s", names);
  }

  [[noreturn]] void late() const {
    fail(ErrorKind::kLink,
         "rank {} is not connected to {} within the time-out: see what they report, and start the world again",
         listener_.rank(), missing());
  }

  void dial(int peer, int64_t deadline_us) {
    const sockaddr_in address = loopback(ports_[static_cast<size_t>(peer)]);
    Handshake handshake;
    handshake.socket = stream_socket();
    handshake.peer = peer;
    const int fd = handshake.socket.get();
    int error = 0;
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) error = errno;
    if (error == EINPROGRESS) {
      if (!wait_for_events(fd, POLLOUT, deadline_us)) late();
      socklen_t length = sizeof error;
      if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
    }
    const Hello hello = {kMagic, static_cast<uint32_t>(listener_.rank()), static_cast<uint32_t>(peer), token_};
    if (error != 0 || !send_hello(fd, hello)) {
      fail(ErrorKind::kLink, "rank {} cannot connect to rank {} on 127.0.0.1:{}: {}: see what rank {} reports",
           listener_.rank(), peer, ports_[static_cast<size_t>(peer)], errno_text(error != 0 ? error : errno), peer);
    }
    handshakes_.push_back(std::move(handshake));
  }

  // A new connection takes 28 bytes at once.
  static bool send_hello(int fd, const Hello& hello) {
    return ::send(fd, &hello, sizeof hello, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof hello);
  }

  void wait(int64_t deadline_us) {
    if (now_us() >= deadline_us) late();
    std::vector<pollfd> wanted = {{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Handshake& handshake : handshakes_) {
      wanted.push_back({.fd = handshake.socket.get(), .events = POLLIN, .revents = 0});
    }
    if (::poll(wanted.data(), wanted.size(), poll_timeout_ms(deadline_us)) < 0 && errno != EINTR) {
      fail(ErrorKind::kLink, "poll: {}", errno_text(errno));
    }
  }

  void accept_all() {
    while (true) {
      Handshake handshake;
      handshake.socket = UniqueFd(::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!handshake.socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        return;
      }
      // When strangers crowd the door, the one that has been silent longest goes.
      const auto silent = [](const Handshake& other) { return other.peer < 0; };
      if (std::ranges::count_if(handshakes_, silent) >= static_cast<std::ptrdiff_t>(kMaxStrangers)) {
        handshakes_.erase(std::ranges::find_if(handshakes_, silent));
      }
      handshakes_.push_back(std::move(handshake));
    }
  }

  void read(Handshake& handshake) {
    while (handshake.received < sizeof(Hello)) {
      const ssize_t got = ::recv(handshake.socket.get(), handshake.bytes + handshake.received,
                                 sizeof(Hello) - handshake.received, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (got <= 0) return drop(handshake);
      handshake.received += static_cast<size_t>(got);
    }
    Hello hello;
    std::memcpy(&hello, handshake.bytes, sizeof hello);
    const auto rank = static_cast<uint32_t>(listener_.rank());
    const bool ours =
        hello.magic == kMagic && hello.to == rank && hello.from < sockets_.size() && same_token(hello.token, token_);
    if (!ours) return drop(handshake);
    if (handshake.peer >= 0) {  // the answer of a rank that we dialled
      if (hello.from != static_cast<uint32_t>(handshake.peer)) return drop(handshake);
    } else {
      if (hello.from <= rank || sockets_[hello.from]) return drop(handshake);  // only higher ranks dial, once
      if (!send_hello(handshake.socket.get(), {kMagic, rank, hello.from, token_})) return drop(handshake);
    }
    set_no_delay(handshake.socket.get());
    sockets_[hello.from] = std::move(handshake.socket);
  }

  void drop(Handshake& handshake) {
    if (handshake.peer >= 0) {
      fail(ErrorKind::kLink,
           "rank {} of another world answers rank {} on 127.0.0.1:{}, or it died: see what rank {} reports",
           handshake.peer, listener_.rank(), ports_[static_cast<size_t>(handshake.peer)], handshake.peer);
    }
    handshake.socket.reset();
  }

  const MeshListener& listener_;
  std::span<const uint16_t> ports_;
  const WorldToken& token_;
  std::vector<UniqueFd> sockets_;
  std::vector<Handshake> handshakes_;
};

}  // namespace

WorldToken make_world_token() {
  WorldToken token;
  size_t filled = 0;
  while (filled < token.size()) {
    const ssize_t got = ::getrandom(token.data() + filled, token.size() - filled, 0);
    if (got < 0 && errno != EINTR) fail(ErrorKind::kInternal, "no random numbers: {}", errno_text(errno));
    if (got > 0) filled += static_cast<size_t>(got);
  }
  return token;
}

MeshListener MeshListener::open(int rank, uint16_t port) {
  UniqueFd socket = stream_socket();
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);  // a port whose last connections linger is free
  sockaddr_in address = loopback(port);
  socklen_t length = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 128) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    const int error = errno;
    fail(ErrorKind::kLink, "rank {} cannot listen on 127.0.0.1:{}: {}: choose another --port", rank, port,
         errno_text(error));
  }
  return MeshListener(rank, ntohs(address.sin_port), std::move(socket));
}

std::vector<UniqueFd> connect_mesh(const MeshListener& listener, std::span<const uint16_t> ports,
                                   const WorldToken& token, int timeout_ms) {
  COPRIME_CHECK(ports.size() <= kMaxRanks && listener.rank() < static_cast<int>(ports.size()), "rank {} of {}",
                listener.rank(), ports.size());
  return Mesh(listener, ports, token).connect(now_us() + int64_t{timeout_ms} * 1000);
}

}  // namespace coprime
