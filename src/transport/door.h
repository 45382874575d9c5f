// Where strangers knock: the authentication of incoming and outgoing connections on non-blocking sockets.
//
// Door accepts from a listener. Whoever connects has 2 seconds to prove itself; at most 64 connections are in that
// state, and when one more comes, the oldest that has said nothing is dropped. What a stranger sends is never kept
// beyond the handshake's bounds. It never blocks: the owner polls its descriptors together with its own.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "transport/endpoint.h"
#include "transport/handshake.h"

namespace coprime {

// A connection whose other end has proved that it holds the key. Non-blocking.
struct Authenticated {
  UniqueFd socket;
  std::vector<std::byte> payload;  // the other end's
  SecretKey session_key;
  std::string from;  // its address, for messages
};

// What the owner of a door answers to a dialler that has proved itself.
struct Admission {
  bool admitted = false;
  std::vector<std::byte> payload;  // if admitted
  std::string reason;              // if not: told to the dialler
  bool try_again = false;

  static Admission welcome(std::vector<std::byte> payload) { return {true, std::move(payload), {}, false}; }
  static Admission refusal(std::string reason, bool try_again = false) {
    return {false, {}, std::move(reason), try_again};
  }
};

class Door {
 public:
  static constexpr size_t kMaxStrangers = 64;
  static constexpr int64_t kPatienceUs = 2'000'000;

  // The listener must outlive the door; any listening stream socket will do.
  Door(int listener, const SecretKey& key, Traffic traffic = Traffic::kData);
  ~Door();

  void append_to(std::vector<pollfd>& wanted) const;
  int64_t deadline_us() const;  // when serve() must be called even without events; negative: never

  // Moves all that can be moved. decide() is asked once for every dialler that has proved itself, with its payload and
  // address; those that it admits are returned when they have been told.
  using Decide = std::function<Admission(std::span<const std::byte> payload, const std::string& from)>;
  std::vector<Authenticated> serve(const Decide& decide);

  // Why others were not let in since the last call, one line each: "10.0.0.3:5123 holds another key: ...". At most 16;
  // connections that came and said nothing are no news.
  std::vector<std::string> take_refusals();

 private:
  struct Guest;
  void accept_all();
  void drop_one();
  void note_refusal(const Guest& guest, const std::string& why);

  int listener_;
  SecretKey key_;
  Traffic traffic_;
  std::list<Guest> guests_;
  std::vector<std::string> refusals_;
};

// The dialling end, over a connected socket: step by step, or until a deadline.
class Introduction {
 public:
  Introduction(UniqueFd socket, const SecretKey& key, std::span<const std::byte> payload);

  pollfd wait_on() const;
  Handshake::State advance();  // kRunning, kDone or kFailed
  Authenticated take();        // in kDone

  // In kFailed, to be read after the other end's name: "holds another key: ...", "closed the connection".
  const std::string& failure() const { return failure_; }
  bool try_again() const { return try_again_; }  // it closed before it said anything, or asked to come back

 private:
  UniqueFd socket_;
  Handshake handshake_;
  std::string failure_;
  bool try_again_ = false;
};

// Error(kLink) "<name> <failure>", or that it has not answered by the deadline.
Authenticated introduce(UniqueFd socket, const SecretKey& key, std::span<const std::byte> payload,
                        std::string_view name, int64_t deadline_us);

}  // namespace coprime
