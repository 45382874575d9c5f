#include "transport/shm/region_handoff.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/door.h"
#include "transport/socket.h"

namespace coprime {
namespace {

constexpr int64_t kRetryUs = 20'000;
// How much longer than the owner a member waits, so that it hears the owner's word when that gives up.
constexpr int64_t kLastWordUs = 500'000;

struct Claim {
  WorldId world;
  uint32_t epoch, members, from, owner;
  uint64_t slot_bytes;
};
static_assert(sizeof(Claim) == 40);

// "It is well", or a line that says why not.
struct Word {
  std::array<char, 512> text = {};  // empty: it is well; ends with a zero
};

Word word_of(const std::string& text) {
  Word word;
  const size_t size = std::min(text.size(), word.text.size() - 1);
  std::copy_n(text.begin(), size, word.text.begin());
  return word;
}

std::string text_of(Word word) {
  word.text.back() = '\0';
  return word.text.data();
}

// The kernel holds a word for a socket of ours at once: it never waits.
bool send_word(int fd, const std::string& text) {
  const Word word = word_of(text);
  return ::send(fd, &word, sizeof word, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(sizeof word);
}

// Collects one word from a socket; what arrives in pieces is kept.
class WordReader {
 public:
  enum class Got : uint8_t { kNothing, kWord, kClosed };
  Got read(int fd) {
    while (received_ < sizeof word_) {
      const ssize_t got =
          ::recv(fd, reinterpret_cast<std::byte*>(&word_) + received_, sizeof word_ - received_, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Got::kNothing;
      if (got <= 0) return Got::kClosed;
      received_ += static_cast<size_t>(got);
    }
    return Got::kWord;
  }
  std::string text() const { return text_of(word_); }

 private:
  Word word_;
  size_t received_ = 0;
};

// An abstract name that only holders of the key can tell, so that nobody else can take it first.
struct SocketName {
  sockaddr_un address = {};
  socklen_t length = 0;
};

SocketName socket_name(const Membership& me, int owner) {
  Claim claim = {me.world, me.epoch, 0, 0, static_cast<uint32_t>(owner), 0};
  const SecretKey::Proof proof = me.key.prove("coprime name of a region's socket", std::as_bytes(std::span(&claim, 1)));
  std::string name(1, '\0');
  name += "coprime-";
  for (size_t i = 0; i < 16; ++i) name += fmt::format("{:02x}", static_cast<unsigned>(proof[i]));
  SocketName result;
  result.address.sun_family = AF_UNIX;
  std::ranges::copy(name, result.address.sun_path);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  return result;
}

UniqueFd unix_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail(ErrorKind::kLink, "no Unix socket: {}", errno_text(errno));
  return fd;
}

// One byte, and the descriptor with it; without one (-1) the byte alone says that there is none.
bool send_descriptor(int socket, int fd) {
  char byte = 'R';
  iovec part = {&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == 1;
}

// Room for one descriptor: the kernel closes what does not fit.
UniqueFd receive_descriptor(int socket) {
  char byte = 0;
  iovec part = {&byte, 1};
  int fd = -1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof fd)> control = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got;
  do got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(sizeof fd)) {
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  }
  return UniqueFd(fd);
}

// The lowest rank's side: it makes the region, hands it out, and sums up.
class Owner {
 public:
  Owner(const Membership& me, const std::vector<int>& group, size_t slot_bytes)
      : me_(me), group_(group), slot_bytes_(slot_bytes), members_(group.size()) {}

  SharedRegion share(int timeout_ms) {
    const int64_t deadline_us = now_us() + int64_t{timeout_ms} * 1000;
    std::shared_ptr<const ShmRegion> region;
    try {
      region = std::make_shared<const ShmRegion>(ShmRegion::create(static_cast<int>(group_.size()), slot_bytes_));
    } catch (const Error& error) {
      failure_ = error.what();
    }
    const UniqueFd listener = listen();
    Door door(listener.get(), me_.key, Traffic::kControl);
    do {
      for (Authenticated& arrival : door.serve([&](auto payload, const auto&) { return judge(payload); })) {
        hand_out(arrival, region ? region->fd() : -1);
      }
      for (size_t place = 1; place < members_.size(); ++place) hear(place);
      if (!settled()) wait(door, deadline_us);
    } while (!settled() && now_us() < deadline_us);
    for (size_t place = 1; place < members_.size() && failure_.empty(); ++place) {
      if (!members_[place].well) {
        failure_ = fmt::format("rank {} did not fetch the shared window within {} ms: it runs where it cannot reach it",
                               group_[place], timeout_ms);
      }
    }
    for (size_t place = 1; place < members_.size(); ++place) {
      if (members_[place].socket && !send_word(members_[place].socket.get(), failure_) && failure_.empty()) {
        failure_ = fmt::format("rank {} closed the connection", group_[place]);
      }
    }
    return {failure_.empty() ? std::move(region) : nullptr, 0, failure_};
  }

 private:
  struct Member {
    UniqueFd socket;
    WordReader reader;
    bool well = false;
  };

  UniqueFd listen() {
    UniqueFd socket = unix_socket();
    const SocketName name = socket_name(me_, group_.front());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0 ||
        ::listen(socket.get(), 64) != 0) {
      fail(ErrorKind::kLink, "the shared window cannot be offered on a Unix socket: {}", errno_text(errno));
    }
    return socket;
  }

  bool settled() const {
    return std::all_of(members_.begin() + 1, members_.end(),
                       [&](const Member& member) { return member.socket && (member.well || !failure_.empty()); });
  }

  Admission judge(std::span<const std::byte> payload) const {
    Claim claim;
    if (payload.size() != sizeof claim) return Admission::refusal("this is a socket for a shared window");
    std::memcpy(&claim, payload.data(), sizeof claim);
    const auto place = std::ranges::find(group_, static_cast<int>(claim.from));
    if (claim.world != me_.world || claim.epoch != me_.epoch || claim.members != group_.size() ||
        claim.owner != static_cast<uint32_t>(group_.front()) || claim.slot_bytes != slot_bytes_ ||
        place == group_.end() || place == group_.begin()) {
      return Admission::refusal(fmt::format("rank {} is no member of the group of rank {}", claim.from, me_.rank));
    }
    if (members_[static_cast<size_t>(place - group_.begin())].socket) {
      return Admission::refusal(fmt::format("rank {} has the shared window already", claim.from));
    }
    return Admission::welcome({});
  }

  void hand_out(Authenticated& arrival, int region) {
    Claim claim;
    std::memcpy(&claim, arrival.payload.data(), sizeof claim);
    const auto place = static_cast<size_t>(std::ranges::find(group_, static_cast<int>(claim.from)) - group_.begin());
    Member& member = members_[place];
    if (member.socket) return;  // came twice in one round
    member.socket = std::move(arrival.socket);
    if (!send_descriptor(member.socket.get(), region)) {
      note(fmt::format("rank {} was not given the shared window: {}", group_[place], errno_text(errno)));
    }
  }

  void hear(size_t place) {
    Member& member = members_[place];
    if (!member.socket || !failure_.empty()) return;
    if (member.well) {
      if (is_closed(member.socket.get())) note(fmt::format("rank {} closed the connection", group_[place]));
      return;
    }
    switch (member.reader.read(member.socket.get())) {
      case WordReader::Got::kNothing:
        return;
      case WordReader::Got::kClosed:
        return note(fmt::format("rank {} closed the connection", group_[place]));
      case WordReader::Got::kWord:
        break;
    }
    const std::string text = member.reader.text();
    member.well = text.empty();
    if (!member.well) note(fmt::format("rank {}: {}", group_[place], text));
  }

  void note(std::string failure) {
    if (failure_.empty()) failure_ = std::move(failure);
  }

  void wait(const Door& door, int64_t deadline_us) const {
    std::vector<pollfd> wanted;
    door.append_to(wanted);
    for (const Member& member : members_) {
      if (member.socket && failure_.empty()) {
        wanted.push_back({.fd = member.socket.get(), .events = POLLIN, .revents = 0});
      }
    }
    if (door.deadline_us() >= 0) deadline_us = std::min(deadline_us, door.deadline_us());
    ::poll(wanted.data(), wanted.size(), poll_timeout_ms(deadline_us));
  }

  const Membership& me_;
  const std::vector<int>& group_;
  size_t slot_bytes_;
  std::vector<Member> members_;  // by place; the first is this rank
  std::string failure_;
};

UniqueFd dial_owner(const Membership& me, int owner, int64_t deadline_us) {
  const SocketName name = socket_name(me, owner);
  while (true) {
    UniqueFd socket = unix_socket();
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0) return socket;
    const int error = errno;  // the owner may not be there yet, or have its hands full
    if (now_us() >= deadline_us) {
      fail(ErrorKind::kLink,
           "rank {}'s Unix socket cannot be reached ({}): the ranks run in separate containers, or it "
           "has not started",
           owner, errno_text(error));
    }
    ::poll(nullptr, 0, static_cast<int>(kRetryUs / 1000));
  }
}

std::shared_ptr<const ShmRegion> fetch(int socket, const std::vector<int>& group, size_t slot_bytes,
                                       int64_t deadline_us) {
  if (!wait_for_events(socket, POLLIN, deadline_us)) fail(ErrorKind::kLink, "nothing came");
  UniqueFd fd = receive_descriptor(socket);
  if (!fd) fail(ErrorKind::kLink, "no descriptor came");
  auto region = std::make_shared<const ShmRegion>(ShmRegion::attach(std::move(fd)));
  if (region->ranks() != static_cast<int>(group.size()) || region->slot_bytes() < slot_bytes) {
    fail(ErrorKind::kLink, "the shared window is for {} ranks and slots of {} bytes, expected {} and {}",
         region->ranks(), region->slot_bytes(), group.size(), slot_bytes);
  }
  return region;
}

SharedRegion join(const Membership& me, const std::vector<int>& group, size_t slot_bytes, int timeout_ms) {
  const int owner = group.front();
  const int64_t deadline_us = now_us() + int64_t{timeout_ms} * 1000;
  const std::string owner_name = fmt::format("rank {}", owner);
  const Claim claim = {me.world,
                       me.epoch,
                       static_cast<uint32_t>(group.size()),
                       static_cast<uint32_t>(me.rank),
                       static_cast<uint32_t>(owner),
                       slot_bytes};
  SharedRegion shared;
  shared.index = static_cast<int>(std::ranges::find(group, me.rank) - group.begin());
  const Authenticated connection = introduce(dial_owner(me, owner, deadline_us), me.key,
                                             std::as_bytes(std::span(&claim, 1)), owner_name, deadline_us);
  const int socket = connection.socket.get();
  std::string trouble;
  try {
    shared.region = fetch(socket, group, slot_bytes, deadline_us);
  } catch (const Error& error) {
    trouble = error.what();
  }
  send_word(socket, trouble);  // an owner that has given up already has left its last word to be read
  WordReader reader;
  const int64_t last_us = deadline_us + kLastWordUs;
  WordReader::Got got;
  while ((got = reader.read(socket)) == WordReader::Got::kNothing && now_us() < last_us) {
    wait_for_events(socket, POLLIN, last_us);
  }
  if (got == WordReader::Got::kWord) {
    shared.failure = reader.text();
  } else {
    shared.failure = fmt::format("{} {}", owner_name,
                                 got == WordReader::Got::kClosed ? "closed the connection" : "said no last word");
  }
  if (!shared.failure.empty()) shared.region = nullptr;
  return shared;
}

}  // namespace

SharedRegion share_region(const Membership& me, const std::vector<int>& group, size_t slot_bytes, int timeout_ms) {
  COPRIME_CHECK(group.size() >= 2 && group.size() <= kMaxRanks && std::ranges::is_sorted(group) &&
                    std::ranges::find(group, me.rank) != group.end(),
                "rank {} in a group of {}", me.rank, group.size());
  try {
    if (me.rank == group.front()) return Owner(me, group, slot_bytes).share(timeout_ms);
    return join(me, group, slot_bytes, timeout_ms);
  } catch (const Error& error) {
    const auto place = std::ranges::find(group, me.rank) - group.begin();
    return {nullptr, static_cast<int>(place), error.what()};
  }
}

}  // namespace coprime
