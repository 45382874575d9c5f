#include "engine/join.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "base/clock.h"
#include "base/error.h"
#include "engine/join_messages.h"
#include "transport/door.h"
#include "transport/progress_mirror.h"
#include "transport/socket.h"

namespace coprime {
namespace {

constexpr int64_t kAnswerUs = 5'000'000;
constexpr int kBacklog = 64;
constexpr int64_t kRetryUs = 500'000;
// A day: the deadline of who never gives up.
constexpr int64_t kForeverUs = int64_t{24} * 3600 * 1'000'000;

struct SocketName {
  sockaddr_un address = {};
  socklen_t length = 0;
};

SocketName abstract_name(const std::string& name) {
  SocketName result;
  result.address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof result.address.sun_path) fail(ErrorKind::kInternal, "a socket's name \"{}\"", name);
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

UniqueFd make_unix_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) fail(ErrorKind::kLink, "a Unix socket cannot be made: {}", errno_text(errno));
  return fd;
}

UniqueFd dial_socket_name(const std::string& name, int64_t deadline_us) {
  const SocketName to = abstract_name(name);
  while (true) {
    UniqueFd fd = make_unix_socket();
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.address), to.length) == 0) {
      ucred front = {};
      socklen_t length = sizeof front;
      if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &front, &length) != 0 || front.uid != ::geteuid())
        fail(ErrorKind::kLink, "the front at {} runs as another user", name);
      set_nonblocking(fd.get());
      return fd;
    }
    if (now_us() > deadline_us) fail(ErrorKind::kLink, "{}: {}", name, errno_text(errno));
    ::usleep(20'000);
  }
}

uint64_t make_ticket() {
  std::array<std::byte, sizeof(uint64_t)> bytes;
  fill_random(bytes);
  uint64_t ticket;
  std::memcpy(&ticket, bytes.data(), sizeof ticket);
  return std::max<uint64_t>(ticket, 1);
}

// A line only when it says something else than the last one.
class News {
 public:
  explicit News(const std::function<void(const std::string&)>& report) : report_(report) {}
  void tell(const std::string& line) {
    if (report_ && line != last_) report_(line);
    last_ = line;
  }

 private:
  const std::function<void(const std::string&)>& report_;
  std::string last_;
};

UniqueFd dial(const JoinOptions& options, News& news) {
  const int64_t patience_us = options.again ? kForeverUs : int64_t{options.timeout_ms} * 1000;
  const int64_t deadline_us = now_us() + patience_us;
  if (!options.front.socket_name.empty()) return dial_socket_name(options.front.socket_name, deadline_us);
  return dial_until(options.front.endpoint, Traffic::kControl, deadline_us,
                    [&](const std::string& why) { news.tell(why + "; trying again"); });
}

// One connection, introduced. Empty when the front refused it for the moment.
std::optional<Authenticated> call(const JoinOptions& options, const JoinRequest& request, News& news) {
  Introduction introduction(dial(options, news), options.key ? *options.key : no_key(), encode(request));
  const int64_t deadline_us = now_us() + kAnswerUs;
  while (true) {
    const Handshake::State state = introduction.advance();
    if (state == Handshake::State::kDone) return introduction.take();
    const bool late = now_us() > deadline_us;
    if (state == Handshake::State::kFailed || late) {
      const std::string why =
          fmt::format("the front at {} {}", options.front.text(), late ? "does not answer" : introduction.failure());
      if (!late && !introduction.try_again()) fail(ErrorKind::kLink, "{}", why);
      news.tell(why);
      return std::nullopt;
    }
    pollfd wanted = introduction.wait_on();
    ::poll(&wanted, 1, 100);
  }
}

// How the front's host and this one are reached by others.
RankPlacement placement_of(int control, const JoinOptions& options) {
  RankPlacement placement{.key = options.key,
                          .model = options.model,
                          .threads = options.threads,
                          .verbs = options.verbs,
                          .measure = options.measure};
  if (!options.front.socket_name.empty()) return placement;
  placement.front_host = peer_address(control).endpoint().host;
  placement.own_host = local_address(control).endpoint().host;
  return placement;
}

std::optional<RankEnding> serve_once(const JoinOptions& options, News& news) {
  const uint64_t ticket = make_ticket();
  std::optional<Authenticated> control =
      call(options, {.version = COPRIME_VERSION, .control = true, .rank = options.rank, .ticket = ticket}, news);
  if (!control) return std::nullopt;
  const JoinAnswer seat = decode_join_answer(control->payload);
  if (seat.ranks < 1 || seat.ranks > kMaxRanks || seat.rank < 0 || seat.rank >= seat.ranks)
    fail(ErrorKind::kLink, "the front at {} offers rank {} of {}", options.front.text(), seat.rank, seat.ranks);
  std::optional<Authenticated> progress =
      call(options, {.version = COPRIME_VERSION, .control = false, .rank = seat.rank, .ticket = ticket}, news);
  if (!progress) return std::nullopt;

  news.tell(fmt::format("joined {} as rank {} of {}", options.front.text(), seat.rank, seat.ranks));
  RankPlacement placement = placement_of(control->socket.get(), options);
  placement.report = [&news](const std::string& line) { news.tell(line); };
  const auto page = std::make_shared<const ProgressPage>(ProgressPage::create(seat.ranks, ProgressPage::Kind::kMirror));
  const ProgressMirror mirror(page, 1u << seat.rank, std::move(progress->socket));
  Channel channel(std::move(control->socket));
  return run_rank(channel, page, placement);
}

}  // namespace

std::string MeetingPoint::text() const { return socket_name.empty() ? endpoint.text() : "this host"; }

SecretKey no_key() { return SecretKey(std::array<std::byte, SecretKey::kBytes>{}); }

UniqueFd listen_on_socket_name(const std::string& name) {
  const SocketName at = abstract_name(name);
  UniqueFd fd = make_unix_socket();
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.address), at.length) != 0 ||
      ::listen(fd.get(), kBacklog) != 0) {
    fail(ErrorKind::kLink, "cannot listen on the Unix socket {}: {}", name, errno_text(errno));
  }
  set_nonblocking(fd.get());
  return fd;
}

RankEnding join_world(const JoinOptions& options) {
  News news(options.report);
  const int64_t deadline_us = now_us() + int64_t{options.timeout_ms} * 1000;
  while (true) {
    const std::optional<RankEnding> ending = serve_once(options, news);
    if (ending) {
      const bool done = ending->why == RankEnding::Why::kDone;
      news.tell(done ? "the front is done" : "the world has ended: " + ending->reason);
    }
    if (ending && !options.again) return *ending;
    if (!options.again && now_us() > deadline_us)
      fail(ErrorKind::kLink, "the front at {} has let this rank not join", options.front.text());
    if (!ending || ending->why != RankEnding::Why::kDone) ::usleep(kRetryUs);
  }
}

}  // namespace coprime
