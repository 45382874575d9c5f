#include "transport/door.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {
namespace {

enum class Io : uint8_t { kIdle, kClosed };

// Moves the handshake's bytes as far as the socket and its state allow.
Io move_bytes(int fd, Handshake& handshake) {
  while (true) {
    if (!handshake.unsent().empty()) {
      const auto bytes = handshake.unsent();
      const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Io::kIdle : Io::kClosed;
      handshake.sent(static_cast<size_t>(sent));
      continue;
    }
    if (handshake.wanted() == 0) return Io::kIdle;
    std::array<std::byte, 512> buffer;
    const ssize_t got = ::recv(fd, buffer.data(), std::min(buffer.size(), handshake.wanted()), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Io::kIdle : Io::kClosed;
    if (got == 0) return Io::kClosed;
    handshake.receive(std::span(buffer).first(static_cast<size_t>(got)));
  }
}

// Reads and forgets what is there. Whether the other end has closed.
bool has_left(int fd) {
  std::array<std::byte, 512> rest;
  const ssize_t got = ::recv(fd, rest.data(), rest.size(), MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

}  // namespace

struct Door::Guest {
  UniqueFd socket;
  Handshake handshake;
  std::string from;
  int64_t deadline_us = 0;
  bool spoke = false;
  bool leaving = false;  // it was told why not; its last bytes are read, so that the close does not take the words back
};

Door::Door(int listener, const SecretKey& key, Traffic traffic) : listener_(listener), key_(key), traffic_(traffic) {
  set_nonblocking(listener);
}
Door::~Door() = default;

void Door::append_to(std::vector<pollfd>& wanted) const {
  wanted.push_back({.fd = listener_, .events = POLLIN, .revents = 0});
  for (const Guest& guest : guests_) {
    const bool sends = !guest.handshake.unsent().empty();
    wanted.push_back({.fd = guest.socket.get(), .events = static_cast<short>(sends ? POLLOUT : POLLIN), .revents = 0});
  }
}

int64_t Door::deadline_us() const { return guests_.empty() ? -1 : guests_.front().deadline_us; }

void Door::note_refusal(const Guest& guest, const std::string& why) {
  constexpr size_t kMaxNotes = 16;
  if (refusals_.size() < kMaxNotes) refusals_.push_back(fmt::format("{} {}", guest.from, why));
}

std::vector<std::string> Door::take_refusals() { return std::exchange(refusals_, {}); }

// The oldest of those that have said nothing; if all have spoken, the oldest.
void Door::drop_one() {
  const auto silent = std::ranges::find_if(guests_, [](const Guest& guest) { return !guest.spoke; });
  guests_.erase(silent != guests_.end() ? silent : guests_.begin());
}

void Door::accept_all() {
  // Not more than the door holds at a time, so that a flood of strangers cannot keep it from serving.
  for (size_t i = 0; i < kMaxStrangers; ++i) {
    UniqueFd socket(::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if ((errno == EMFILE || errno == ENFILE) && !guests_.empty()) {
        drop_one();
        continue;
      }
      return;
    }
    sockaddr_storage storage = {};
    socklen_t length = sizeof storage;
    if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &length) != 0) continue;  // gone already
    tune_stream(socket.get(), traffic_);
    if (guests_.size() >= kMaxStrangers) drop_one();
    guests_.push_back({.socket = std::move(socket),
                       .handshake = Handshake::accept(key_),
                       .from = Address(reinterpret_cast<const sockaddr*>(&storage), length).text(),
                       .deadline_us = now_us() + kPatienceUs});
  }
}

std::vector<Authenticated> Door::serve(const Decide& decide) {
  std::vector<Authenticated> admitted;
  accept_all();
  for (auto next = guests_.begin(); next != guests_.end();) {
    const auto it = next++;
    Guest& guest = *it;
    if (guest.leaving) {
      if (has_left(guest.socket.get()) || now_us() >= guest.deadline_us) guests_.erase(it);
      continue;
    }
    const size_t before = guest.handshake.wanted();
    Io io = move_bytes(guest.socket.get(), guest.handshake);
    guest.spoke |= guest.handshake.wanted() != before || guest.handshake.state() != Handshake::State::kRunning;
    if (guest.handshake.state() == Handshake::State::kClaimed) {
      Admission admission = decide(guest.handshake.peer_payload(), guest.from);
      if (admission.admitted) {
        guest.handshake.admit(admission.payload);
      } else {
        guest.handshake.refuse(admission.reason, admission.try_again);
      }
      io = move_bytes(guest.socket.get(), guest.handshake);
    }
    const Handshake::State state = guest.handshake.state();
    const bool all_said = guest.handshake.unsent().empty();
    if (state == Handshake::State::kDone && all_said) {
      const auto payload = guest.handshake.peer_payload();
      admitted.push_back({std::move(guest.socket),
                          {payload.begin(), payload.end()},
                          guest.handshake.session_key(),
                          std::move(guest.from)});
      guests_.erase(it);
    } else if (state == Handshake::State::kFailed && all_said) {
      note_refusal(guest, guest.handshake.failure());
      ::shutdown(guest.socket.get(), SHUT_WR);
      guest.leaving = true;
    } else if (io == Io::kClosed) {
      if (guest.spoke) note_refusal(guest, "closed the connection before it had proved itself");
      guests_.erase(it);
    } else if (now_us() >= guest.deadline_us) {
      if (guest.spoke) note_refusal(guest, fmt::format("said nothing more for {} s", kPatienceUs / 1'000'000));
      guests_.erase(it);
    }
  }
  return admitted;
}

Introduction::Introduction(UniqueFd socket, const SecretKey& key, std::span<const std::byte> payload)
    : socket_(std::move(socket)), handshake_(Handshake::dial(key, payload)) {
  set_nonblocking(socket_.get());
}

pollfd Introduction::wait_on() const {
  const bool sends = !handshake_.unsent().empty();
  return {.fd = socket_.get(), .events = static_cast<short>(sends ? POLLOUT : POLLIN), .revents = 0};
}

Handshake::State Introduction::advance() {
  if (!failure_.empty()) return Handshake::State::kFailed;
  const Io io = move_bytes(socket_.get(), handshake_);
  if (handshake_.state() == Handshake::State::kFailed) {
    failure_ = handshake_.failure();
    try_again_ = handshake_.try_again();
  } else if (handshake_.state() == Handshake::State::kRunning && io == Io::kClosed) {
    failure_ = "closed the connection before it had proved itself";
    try_again_ = true;  // crowded out by strangers, or not ready yet
  }
  return failure_.empty() ? handshake_.state() : Handshake::State::kFailed;
}

Authenticated Introduction::take() {
  COPRIME_CHECK(handshake_.state() == Handshake::State::kDone);
  const auto payload = handshake_.peer_payload();
  return {std::move(socket_), {payload.begin(), payload.end()}, handshake_.session_key(), {}};
}

Authenticated introduce(UniqueFd socket, const SecretKey& key, std::span<const std::byte> payload,
                        std::string_view name, int64_t deadline_us) {
  Introduction introduction(std::move(socket), key, payload);
  while (true) {
    const Handshake::State state = introduction.advance();
    if (state == Handshake::State::kDone) return introduction.take();
    if (state == Handshake::State::kFailed) fail(ErrorKind::kLink, "{} {}", name, introduction.failure());
    if (now_us() >= deadline_us) {
      fail(ErrorKind::kLink, "{} has not answered: see what it reports, and whether that is a coprime world", name);
    }
    const pollfd wanted = introduction.wait_on();
    wait_for_events(wanted.fd, wanted.events, deadline_us);
  }
}

}  // namespace coprime
