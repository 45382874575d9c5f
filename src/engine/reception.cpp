#include "engine/reception.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/clock.h"
#include "base/error.h"
#include "engine/join_messages.h"

namespace coprime {
namespace {

// Who is missing is told once those that are started together are there, and then again and again.
constexpr int64_t kFirstReportUs = 500'000, kReportUs = 3'000'000;
constexpr int kTickMs = 100;
constexpr size_t kMostReasons = 64;
constexpr int kLongestPollMs = 200;
// How long after it was given a seat both of a rank's connections must be there.
constexpr int64_t kSeatUs = 10'000'000;

bool is_closed(int fd) {
  std::byte byte;
  const ssize_t got = ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool runs_as_this_user(int fd) {
  ucred other = {};
  socklen_t length = sizeof other;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &length) == 0 && other.uid == ::geteuid();
}

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

Reception::Reception(UniqueFd socket, std::string address, const SecretKey& key, int first, int ranks, bool same_user,
                     Report report)
    : socket_(std::move(socket)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      address_(std::move(address)),
      first_(first),
      ranks_(ranks),
      same_user_(same_user),
      report_(std::move(report)),
      door_(socket_.get(), key, Traffic::kControl),
      seats_(static_cast<size_t>(ranks - first)) {
  if (!wake_) fail(ErrorKind::kInternal, "an event descriptor cannot be made: {}", errno_text(errno));
  thread_ = std::thread([this] { run(); });
}

Reception::~Reception() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  const uint64_t one = 1;
  if (::write(wake_.get(), &one, sizeof one) != sizeof one) {
    // The thread looks at stop_ every kLongestPollMs anyway.
  }
  thread_.join();
}

void Reception::run() {
  while (true) {
    std::vector<pollfd> wanted{{wake_.get(), POLLIN, 0}};
    door_.append_to(wanted);
    ::poll(wanted.data(), wanted.size(), kLongestPollMs);
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return;
      for (Authenticated& guest : door_.serve(
               [&](std::span<const std::byte> payload, const std::string&from) { return decide(payload, from); }))
        welcome(std::move(guest));
      free_seats_of_leavers();
    }
    changed_.notify_all();
    report_refusals();
  }
}

// Who is refused for the moment comes again and again: each reason is told once, "10.0.0.3:5123 holds another key:
// ...".
void Reception::report_refusals() {
  for (const std::string& refusal : door_.take_refusals()) {
    const size_t port = refusal.find(' ');
    const bool fresh =
        told_.size() < kMostReasons && told_.insert(refusal.substr(std::min(port, refusal.size()))).second;
    if (fresh) report_(refusal);
  }
}

Admission Reception::decide(std::span<const std::byte> payload, const std::string& from) {
  JoinRequest request;
  try {
    request = decode_join_request(payload);
  } catch (const Error& error) {
    return Admission::refusal(error.what());
  }
  if (request.version != COPRIME_VERSION) {
    return Admission::refusal(fmt::format("the front runs coprime {}, this rank {}: run the same on all hosts",
                                          COPRIME_VERSION, request.version));
  }
  if (request.control) return seat_rank(request.rank, request.ticket, from);
  const Seat* its = seat_of(request.ticket);
  if (its == nullptr || its->rank.progress)
    return Admission::refusal("this connection belongs to no rank of the world", true);
  return Admission::welcome(encode(JoinAnswer{its->rank.rank, ranks_}));
}

Admission Reception::seat_rank(int wanted, uint64_t ticket, const std::string& from) {
  if (wanted >= ranks_ || wanted < -1 || ticket == 0)
    return Admission::refusal(fmt::format("rank {} is beyond this world of {}", wanted, ranks_));
  if (wanted >= 0 && wanted < first_) {
    return Admission::refusal(
        fmt::format("rank {} runs on the front's host: ask for {} to {}", wanted, first_, ranks_ - 1));
  }
  if (closed_) return Admission::refusal(fmt::format("the world of {} ranks is whole", ranks_), true);
  if (wanted >= 0 && seat(wanted).ticket != 0)
    return Admission::refusal(fmt::format("rank {} has joined already", wanted), true);
  int rank = wanted;
  for (int free = first_; rank < 0 && free < ranks_; ++free) {
    if (seat(free).ticket == 0) rank = free;
  }
  if (rank < 0) return Admission::refusal(fmt::format("all {} ranks of the world have joined", ranks_), true);
  seat(rank) = {.ticket = ticket, .since_us = now_us(), .rank = {.rank = rank, .from = from}};
  return Admission::welcome(encode(JoinAnswer{rank, ranks_}));
}

Reception::Seat* Reception::seat_of(uint64_t ticket) {
  const auto its = std::ranges::find_if(seats_, [&](const Seat& s) { return ticket != 0 && s.ticket == ticket; });
  return its == seats_.end() ? nullptr : &*its;
}

// Its payload was decoded when it was let in.
void Reception::welcome(Authenticated guest) {
  const JoinRequest request = decode_join_request(guest.payload);
  Seat* its = seat_of(request.ticket);
  if (its == nullptr || (same_user_ && !runs_as_this_user(guest.socket.get()))) return;
  if (!request.control) {
    its->rank.progress = std::move(guest.socket);
    return;
  }
  const Address address = peer_address(guest.socket.get());
  if (address.family() != AF_UNIX && !address.is_loopback()) its->rank.host = address.endpoint().host;
  its->rank.control = std::move(guest.socket);
}

void Reception::free_seats_of_leavers() {
  if (closed_) return;
  for (Seat& its : seats_) {
    if (its.ticket == 0) continue;
    const bool late = !its.whole() && now_us() - its.since_us > kSeatUs;
    const bool left = (its.rank.control && is_closed(its.rank.control.get())) ||
                      (its.rank.progress && is_closed(its.rank.progress.get()));
    if (!late && !left) continue;
    report_(fmt::format("rank {} ({}) has left before the world was whole", its.rank.rank, its.rank.from));
    its = {};
  }
}

std::vector<int> Reception::missing() const {
  std::vector<int> ranks;
  for (size_t i = 0; i < seats_.size(); ++i) {
    if (!seats_[i].whole()) ranks.push_back(first_ + static_cast<int>(i));
  }
  return ranks;
}

std::vector<JoinedRank> Reception::wait(int timeout_ms, const std::function<void()>& check) {
  const int64_t start_us = now_us();
  int64_t next_report_us = start_us + kFirstReportUs;
  std::unique_lock lock(mutex_);
  while (true) {
    const std::vector<int> ranks = missing();
    if (ranks.empty()) break;
    const int64_t time_us = now_us();
    if (time_us - start_us > int64_t{timeout_ms} * 1000) {
      fail(ErrorKind::kLink, "{} did not join at {} within {} s: start `coprime rank --join` there", ranks_text(ranks),
           address_, timeout_ms / 1000);
    }
    if (time_us >= next_report_us) {
      next_report_us = time_us + kReportUs;
      report_(fmt::format("waiting for {} of {} to join at {}", ranks_text(ranks), ranks_, address_));
    }
    changed_.wait_for(lock, std::chrono::milliseconds(kTickMs));
    lock.unlock();
    check();
    lock.lock();
  }
  closed_ = true;
  std::vector<JoinedRank> joined;
  for (Seat& its : seats_) joined.push_back(std::move(its.rank));
  return joined;
}

}  // namespace coprime
