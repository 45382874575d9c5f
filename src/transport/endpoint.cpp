#include "transport/endpoint.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <memory>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {
namespace {

constexpr int64_t kRetryUs = 200'000;
constexpr int64_t kReportUs = 5'000'000;
constexpr int kBacklog = 128;
constexpr int kBufferBytes = 4 << 20;

// Quiet connections are probed after 2 s, every second.
constexpr int kKeepAliveIdleS = 2, kKeepAliveIntervalS = 1;
constexpr int kControlSilenceMs = 5'000;
constexpr int kDataSilenceMs = 75'000;  // above the longest time-out of a gate, 60 s

void set_option(int fd, int level, int option, int value) { ::setsockopt(fd, level, option, &value, sizeof value); }

// A buffer size that is set is fixed, and the system cuts it to its own limit, which may be below what it would have
// grown to by itself: so it is set only where all of it is granted.
void set_buffer(int fd, int option, const char* limit_file) {
  int64_t limit = 0;
  std::ifstream(limit_file) >> limit;
  if (limit >= kBufferBytes) set_option(fd, SOL_SOCKET, option, kBufferBytes);
}

void set_buffers(int fd) {
  set_buffer(fd, SO_SNDBUF, "/proc/sys/net/core/wmem_max");
  set_buffer(fd, SO_RCVBUF, "/proc/sys/net/core/rmem_max");
}

UniqueFd stream_socket(int family) {
  UniqueFd socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail(ErrorKind::kLink, "no socket: {}", errno_text(errno));
  return socket;
}

}  // namespace

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

Endpoint parse_endpoint(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    fail(ErrorKind::kUsage, "\"{}\" is no HOST:PORT ({}): for example 10.0.0.2:7000 or [fe80::1%eth0]:7000", text, why);
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) refuse("no port");
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find_first_of("[]:") != std::string_view::npos) {
    refuse("a host with colons stands in brackets");
  }
  if (host.empty()) refuse("no host");
  if (host.find('\0') != std::string_view::npos) refuse("a zero byte");
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size()) {
    refuse("a port is a number from 0 to 65535");
  }
  return {std::string(host), port};
}

Address::Address(const sockaddr* address, socklen_t length) : length_(std::min<socklen_t>(length, sizeof storage_)) {
  std::memcpy(&storage_, address, length_);
}

uint16_t Address::port() const {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  if (family() == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
  return 0;
}

bool Address::is_loopback() const {
  if (family() == AF_INET) return ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr) >> 24 == 127;
  if (family() == AF_INET6) {
    const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&address) || (IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127);
  }
  return family() == AF_UNIX;
}

Endpoint Address::endpoint() const {
  char host[NI_MAXHOST] = {};
  if (::getnameinfo(get(), length_, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) return {"?", port()};
  return {host, port()};
}

std::string Address::text() const { return family() == AF_UNIX ? "a Unix socket" : endpoint().text(); }

Address local_address(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    fail(ErrorKind::kLink, "a socket has no address: {}", errno_text(errno));
  }
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

Address peer_address(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) {
    fail(ErrorKind::kLink, "a connection has no other end: {}", errno_text(errno));
  }
  return {reinterpret_cast<const sockaddr*>(&storage), length};
}

std::vector<Address> resolve(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(endpoint.host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &list);
  if (error != 0) {
    fail(ErrorKind::kLink, "host {} is not known: {}: give its name or its address", endpoint.host,
         error == EAI_SYSTEM ? errno_text(errno) : ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET || entry->ai_family == AF_INET6) {
      addresses.emplace_back(entry->ai_addr, entry->ai_addrlen);
    }
  }
  if (addresses.empty()) fail(ErrorKind::kLink, "host {} has no address of the internet", endpoint.host);
  return addresses;
}

void tune_stream(int fd, Traffic traffic) {
  set_no_delay(fd);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalS);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, traffic == Traffic::kControl ? kControlSilenceMs : kDataSilenceMs);
}

Listener Listener::open(const Endpoint& endpoint, bool has_key, std::string_view advice) {
  const std::vector<Address> addresses = resolve(endpoint);
  if (!has_key) {
    for (const Address& address : addresses) {
      if (address.is_loopback()) continue;
      fail(
          ErrorKind::kUsage,
          "{} can be reached from other machines, where anybody could join this world: give a --key-file, or listen on "
          "127.0.0.1",
          address.text());
    }
  }
  int error = 0;
  for (const Address& address : addresses) {
    UniqueFd socket = stream_socket(address.family());
    set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // a port whose last connections linger is free
    set_buffers(socket.get());                              // connections inherit them
    if (::bind(socket.get(), address.get(), address.length()) == 0 && ::listen(socket.get(), kBacklog) == 0) {
      const Address bound = local_address(socket.get());
      return {std::move(socket), bound};
    }
    error = errno;
  }
  fail(ErrorKind::kLink, "cannot listen on {}: {}: {}", endpoint.text(), errno_text(error), advice);
}

Dial::Dial(std::vector<Address> addresses, Traffic traffic) : addresses_(std::move(addresses)), traffic_(traffic) {
  start_next();
}

void Dial::start_next() {
  while (next_ < addresses_.size()) {
    const Address& address = addresses_[next_++];
    socket_ = stream_socket(address.family());
    tune_stream(socket_.get(), traffic_);
    if (traffic_ == Traffic::kData) set_buffers(socket_.get());
    if (::connect(socket_.get(), address.get(), address.length()) == 0) {
      state_ = State::kConnected;
      return;
    }
    if (errno == EINPROGRESS || errno == EINTR) return;
    error_ = errno;
  }
  socket_.reset();
  state_ = State::kFailed;
}

Dial::State Dial::advance() {
  if (state_ != State::kConnecting) return state_;
  pollfd wanted = {.fd = socket_.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&wanted, 1, 0) <= 0) return state_;
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error == 0) return state_ = State::kConnected;
  error_ = error;
  start_next();
  return state_;
}

UniqueFd dial_until(const Endpoint& endpoint, Traffic traffic, int64_t deadline_us,
                    const std::function<void(const std::string&)>& report, const std::function<bool()>& stop) {
  constexpr int64_t kGlanceUs = 100'000;  // how often stop() is asked
  int64_t reported_us = now_us() - kReportUs;
  while (true) {
    std::string why;
    try {
      Dial dial(resolve(endpoint), traffic);
      while (dial.advance() == Dial::State::kConnecting && now_us() < deadline_us) {
        if (stop && stop()) return {};
        wait_for_events(dial.fd(), POLLOUT, std::min(deadline_us, now_us() + kGlanceUs));
      }
      if (dial.state() == Dial::State::kConnected) return dial.take();
      why = fmt::format("{}: {}", endpoint.text(),
                        dial.state() == Dial::State::kFailed ? errno_text(dial.error()) : "no answer");
    } catch (const Error& error) {  // the name service may come back as well
      why = error.what();
    }
    if (now_us() >= deadline_us) fail(ErrorKind::kLink, "cannot connect to {}", why);
    if (report && now_us() - reported_us >= kReportUs) {
      report(why);
      reported_us = now_us();
    }
    const int64_t again_us = std::min(deadline_us, now_us() + kRetryUs);
    while (now_us() < again_us) {
      if (stop && stop()) return {};
      ::poll(nullptr, 0, poll_timeout_ms(std::min(again_us, now_us() + kGlanceUs)));
    }
  }
}

}  // namespace coprime
