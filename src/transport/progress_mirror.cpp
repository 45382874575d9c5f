#include "transport/progress_mirror.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/endpoint.h"
#include "transport/socket.h"

namespace coprime {
namespace {

constexpr int64_t kPeriodUs = 20'000;

// All that one side knows, little-endian. Lines of ranks without a bit in `ranks` say nothing.
struct Frame {
  static constexpr uint32_t kMagic = 0x474f5250;  // "PROG"
  uint32_t magic = kMagic, ranks = 0, gone = 0, reserved = 0;
  uint64_t verdict = 0;
  struct Line {
    uint64_t counter = 0, claim = 0, waiting_sequence = 0, waiting_peers = 0;
  };
  std::array<Line, kMaxRanks> lines = {};
};
static_assert(sizeof(Frame) == 24 + 32 * kMaxRanks);

UniqueFd make_bell() {
  UniqueFd bell(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) fail(ErrorKind::kLink, "no event descriptor: {}", errno_text(errno));
  return bell;
}

void ring(const UniqueFd& bell) { ::eventfd_write(bell.get(), 1); }

// Frames over one socket, without blocking. A frame that the socket has begun to take is finished first; of those that
// come meanwhile only the newest is ever sent.
class FrameStream {
 public:
  explicit FrameStream(UniqueFd socket) : socket_(std::move(socket)) {
    set_nonblocking(socket_.get());
    tune_stream(socket_.get(), Traffic::kControl);
  }
  int fd() const { return socket_.get(); }
  bool open() const { return open_; }
  bool sending() const { return sent_ < sizeof(Frame); }

  // Sends what the other end does not know yet, or the same again when the heartbeat is due.
  void offer(const Frame& frame) {
    flush();
    if (!open_ || sending()) return;
    const int64_t time_us = now_us();
    if (time_us < heartbeat_us_ && std::memcmp(&out_, &frame, sizeof frame) == 0) return;
    out_ = frame;
    sent_ = 0;
    heartbeat_us_ = time_us + kHeartbeatUs;
    flush();
  }

  // The newest frame that has arrived since the last call.
  std::optional<Frame> receive() {
    std::optional<Frame> newest;
    while (open_) {
      const ssize_t got =
          ::recv(socket_.get(), reinterpret_cast<std::byte*>(&in_) + received_, sizeof in_ - received_, MSG_DONTWAIT);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (got <= 0) {
        open_ = false;
        break;
      }
      received_ += static_cast<size_t>(got);
      if (received_ < sizeof in_) continue;
      received_ = 0;
      if (in_.magic != Frame::kMagic) {
        open_ = false;
        break;
      }
      newest = in_;
    }
    return newest;
  }

 private:
  void flush() {
    while (open_ && sending()) {
      const ssize_t sent = ::send(socket_.get(), reinterpret_cast<const std::byte*>(&out_) + sent_, sizeof out_ - sent_,
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (sent < 0) {
        open_ = false;
        return;
      }
      sent_ += static_cast<size_t>(sent);
    }
  }

  UniqueFd socket_;
  bool open_ = true;
  Frame in_, out_;
  size_t received_ = 0, sent_ = sizeof(Frame);
  int64_t heartbeat_us_ = 0;
};

template <class F>
void for_each_rank(uint32_t ranks, int count, F&& use) {
  for (int rank = 0; rank < count; ++rank) {
    if ((ranks >> rank & 1) != 0) use(rank, static_cast<size_t>(rank));
  }
}

// What a page says of these ranks.
Frame read_page(const ProgressPage& page, uint32_t ranks) {
  Frame frame;
  frame.ranks = ranks;
  frame.verdict = page.verdict_word();
  for_each_rank(ranks, page.ranks(), [&](int rank, size_t line) {
    if (page.is_gone(rank)) frame.gone |= 1u << rank;
    const ProgressPage::Waiting waiting = page.waiting(rank);
    frame.lines[line] = {page.counter(rank).load(std::memory_order_relaxed), page.claim_word(rank), waiting.sequence,
                         waiting.peers};
  });
  return frame;
}

// What a frame says of these ranks, which the other side owns.
void write_page(const ProgressPage& page, const Frame& frame, uint32_t ranks) {
  for_each_rank(ranks, page.ranks(), [&](int rank, size_t line) {
    page.counter(rank).store(frame.lines[line].counter, std::memory_order_relaxed);
    page.set_waiting(rank, {frame.lines[line].waiting_sequence,
                            static_cast<uint32_t>(frame.lines[line].waiting_peers) & ((1u << kMaxRanks) - 1)});
    if ((frame.gone >> rank & 1) != 0) page.mark_gone(rank);
  });
}

uint32_t all_ranks(const ProgressPage& page) { return (1u << page.ranks()) - 1; }

void drain(const UniqueFd& bell) {
  eventfd_t count;
  ::eventfd_read(bell.get(), &count);
}

pollfd wanted(const FrameStream& stream) {
  return {.fd = stream.fd(), .events = static_cast<short>(POLLIN | (stream.sending() ? POLLOUT : 0)), .revents = 0};
}

}  // namespace

ProgressMirror::ProgressMirror(std::shared_ptr<const ProgressPage> page, uint32_t mine, UniqueFd socket)
    : page_(std::move(page)), mine_(mine), socket_(std::move(socket)), wake_(make_bell()) {
  COPRIME_CHECK(page_->kind() == ProgressPage::Kind::kMirror && (mine & ~all_ranks(*page_)) == 0, "ranks {:#x} of {}",
                mine, page_->ranks());
  page_->set_front_heard(now_us());
  thread_ = std::thread([this] { run(); });
}

ProgressMirror::~ProgressMirror() {
  ring(wake_);
  thread_.join();
}

void ProgressMirror::run() {
  FrameStream stream(std::move(socket_));
  const uint32_t others = all_ranks(*page_) & ~mine_;
  while (stream.open()) {
    if (const std::optional<Frame> frame = stream.receive()) {
      page_->set_front_heard(now_us());
      write_page(*page_, *frame, others);
      page_->adopt_verdict(frame->verdict);
    }
    stream.offer(read_page(*page_, mine_));
    std::array<pollfd, 2> fds = {wanted(stream), {.fd = wake_.get(), .events = POLLIN, .revents = 0}};
    ::poll(fds.data(), fds.size(), kPeriodUs / 1000);
    if (fds[1].revents != 0) break;
  }
  page_->set_front_heard(0);
}

struct ProgressHub::State {
  struct Host {
    uint32_t ranks;
    FrameStream stream;
  };
  explicit State(std::shared_ptr<const ProgressPage> the_page) : page(std::move(the_page)), bell(make_bell()) {}

  void run();
  void hear(Host& host) const;

  std::shared_ptr<const ProgressPage> page;
  UniqueFd bell;
  std::mutex mutex;       // of the two below
  std::list<Host> added;  // not yet with the thread
  bool stopping = false;
  std::list<Host> hosts;  // the thread's
};

ProgressHub::ProgressHub(std::shared_ptr<const ProgressPage> page) : state_(std::make_unique<State>(std::move(page))) {
  COPRIME_CHECK(state_->page->kind() == ProgressPage::Kind::kFronts);
  thread_ = std::thread([state = state_.get()] { state->run(); });
}

ProgressHub::~ProgressHub() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  ring(state_->bell);
  thread_.join();
}

void ProgressHub::add(uint32_t ranks, UniqueFd socket) {
  COPRIME_CHECK(ranks != 0 && (ranks & ~all_ranks(*state_->page)) == 0, "ranks {:#x} of {}", ranks,
                state_->page->ranks());
  for_each_rank(ranks, state_->page->ranks(), [&](int rank, size_t) { state_->page->set_heard(rank, now_us()); });
  {
    const std::lock_guard lock(state_->mutex);
    state_->added.push_back({ranks, FrameStream(std::move(socket))});
  }
  ring(state_->bell);
}

// Takes over what a host says. A frame about other ranks than its own is no frame.
void ProgressHub::State::hear(Host& host) const {
  const std::optional<Frame> frame = host.stream.receive();
  if (!frame || frame->ranks != host.ranks) {
    if (frame || !host.stream.open()) {
      for_each_rank(host.ranks, page->ranks(), [&](int rank, size_t) { page->mark_gone(rank); });
      host.ranks = 0;
    }
    return;
  }
  write_page(*page, *frame, host.ranks);
  for_each_rank(host.ranks, page->ranks(), [&](int rank, size_t line) {
    page->set_heard(rank, now_us());
    page->adopt_claim(rank, frame->lines[line].claim);
  });
}

void ProgressHub::State::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stopping) return;
      hosts.splice(hosts.end(), added);
    }
    for (Host& host : hosts) hear(host);
    std::erase_if(hosts, [](const Host& host) { return host.ranks == 0; });
    for (Host& host : hosts) host.stream.offer(read_page(*page, all_ranks(*page) & ~host.ranks));

    std::vector<pollfd> fds = {{.fd = bell.get(), .events = POLLIN, .revents = 0}};
    for (const Host& host : hosts) fds.push_back(wanted(host.stream));
    ::poll(fds.data(), fds.size(), hosts.empty() ? -1 : static_cast<int>(kPeriodUs / 1000));
    drain(bell);
  }
}

}  // namespace coprime
