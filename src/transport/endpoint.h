// Addresses of hosts and ports, and the stream sockets that lead there: parsing, resolving, listening, dialling.
//
// A listener beyond loopback needs a key: without one, anybody on the network could join a world.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"

namespace coprime {

// "host:7000", "10.0.0.2:7000", "[fe80::1%eth0]:7000".
struct Endpoint {
  std::string host;  // without brackets
  uint16_t port = 0;

  std::string text() const;
  bool operator==(const Endpoint&) const = default;
};

// Error(kUsage) unless the text is HOST:PORT or [HOST]:PORT with a port up to 65535.
Endpoint parse_endpoint(std::string_view text);

// A resolved address.
class Address {
 public:
  Address() = default;
  Address(const sockaddr* address, socklen_t length);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const { return length_; }
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  bool is_loopback() const;
  Endpoint endpoint() const;  // numeric
  std::string text() const;   // "10.0.0.2:7000", "a Unix socket"

 private:
  sockaddr_storage storage_ = {};
  socklen_t length_ = 0;
};

Address local_address(int fd);  // Error(kLink) when the descriptor has none
Address peer_address(int fd);

// All addresses of a name, in the resolver's order, at least one. Error(kLink) naming it.
std::vector<Address> resolve(const Endpoint& endpoint);

// What a connection carries decides how soon silence counts as death: the kernel closes a connection whose other end
// has acknowledged nothing for so long. Data waits longer than any gate: a rank that computes reads nothing, and is
// alive.
enum class Traffic : uint8_t { kControl, kData };

// No delay and keep-alive. No effect on what is not TCP. (Buffers of 4 MiB, where the system allows that many, are set
// by Listener and Dial: they must be there before the connection is.)
void tune_stream(int fd, Traffic traffic);

class Listener {
 public:
  // Port 0: a free one. `advice` ends the errors ("choose another --port"). Error(kUsage) for an address beyond
  // loopback without a key; Error(kLink) when the port is taken.
  static Listener open(const Endpoint& endpoint, bool has_key, std::string_view advice);

  int fd() const { return socket_.get(); }
  const Address& address() const { return address_; }
  uint16_t port() const { return address_.port(); }

 private:
  Listener(UniqueFd socket, Address address) : socket_(std::move(socket)), address_(address) {}
  UniqueFd socket_;
  Address address_;
};

// A connection that is being made to the addresses of an endpoint, one after the other. Non-blocking.
class Dial {
 public:
  Dial(std::vector<Address> addresses, Traffic traffic);

  enum class State : uint8_t { kConnecting, kConnected, kFailed };
  // To be called when fd() is writable or has an error.
  State advance();
  State state() const { return state_; }
  int fd() const { return socket_.get(); }
  UniqueFd take() { return std::move(socket_); }  // in kConnected
  int error() const { return error_; }            // in kFailed: the last errno

 private:
  void start_next();
  std::vector<Address> addresses_;
  size_t next_ = 0;
  Traffic traffic_;
  UniqueFd socket_;
  State state_ = State::kConnecting;
  int error_ = 0;
};

// A connected, non-blocking, tuned socket. Tries again every 200 ms until the deadline (of now_us()) and reports why,
// at first and every few seconds ("10.0.0.2:7000: Connection refused"). Error(kLink) at the deadline with the last
// reason; stop() true ends it early, and the result is empty.
UniqueFd dial_until(const Endpoint& endpoint, Traffic traffic, int64_t deadline_us,
                    const std::function<void(const std::string&)>& report = {}, const std::function<bool()>& stop = {});

}  // namespace coprime
