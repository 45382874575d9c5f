#include "transport/soft_uc/soft_uc_queue_pair.h"

#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "transport/soft_uc/status.h"

namespace coprime {
namespace {

constexpr uint64_t kSeedStride = 0x9e3779b97f4a7c15;  // the pairs of a device differ in their delays

const char* state_name(SoftUcQueuePair::State state) {
  switch (state) {
    case SoftUcQueuePair::State::kReset:
      return "RESET";
    case SoftUcQueuePair::State::kInit:
      return "INIT";
    case SoftUcQueuePair::State::kReadyToReceive:
      return "RTR";
    case SoftUcQueuePair::State::kReadyToSend:
      return "RTS";
  }
  return "?";
}

void require(SoftUcQueuePair::State found, SoftUcQueuePair::State expected, const char* next) {
  if (found == expected) return;
  fail(ErrorKind::kLink, "a queue pair in state {} cannot become {}: bring it to {} first", state_name(found), next,
       state_name(expected));
}

QueuePairLimits limits_of(const SoftUcOptions& options) {
  return {.max_message_bytes = options.max_message_bytes,
          .send_depth = options.send_depth,
          .receive_depth = options.receive_depth,
          .max_posted_bytes = options.max_posted_bytes,
          .frame_bytes = options.frame_bytes,
          .loses_unposted = true,
          .completes_unsignaled = options.completes_unsignaled,
          .carries_tags = options.carries_tags};
}

bool within(const WorkRequest& request, std::span<const std::byte> region) {
  return request.data >= region.data() && request.data + request.bytes <= region.data() + region.size();
}

}  // namespace

SoftUcQueuePair::SoftUcQueuePair(std::shared_ptr<SoftUcDevice> device)
    : SoftUcQueuePair(device, device->open_queue_pair()) {}

SoftUcQueuePair::SoftUcQueuePair(std::shared_ptr<SoftUcDevice> device, int ordinal)
    : device_(std::move(device)),
      limits_(limits_of(device_->options())),
      line_(device_->options(), device_->options().seed + static_cast<uint64_t>(ordinal) * kSeedStride),
      silent_(ordinal < device_->options().mute_pairs),
      completions_(device_->options()) {}

SoftUcQueuePair::~SoftUcQueuePair() {
  // A device goes on with what was posted when its software asks no more.
  sends_may_leave_ = sends_posted_;
  if (failure_.empty()) move_sends();
  device_->close_regions(static_cast<int>(regions_.size()));
  device_->close_queue_pair();
}

void SoftUcQueuePair::to_init() {
  require(state_, State::kReset, "INIT");
  state_ = State::kInit;
}

void SoftUcQueuePair::to_ready_to_receive(UniqueFd socket) {
  require(state_, State::kInit, "RTR");
  wire_.emplace(std::move(socket), limits_.max_message_bytes);
  if (!device_->options().delay.none()) {
    timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!timer_) fail(ErrorKind::kLink, "a timer for delayed messages cannot be made: {}", errno_text(errno));
  }
  state_ = State::kReadyToReceive;
}

void SoftUcQueuePair::to_ready_to_send() {
  require(state_, State::kReadyToReceive, "RTS");
  state_ = State::kReadyToSend;
}

bool SoftUcQueuePair::register_memory(std::span<std::byte> memory) {
  if (!device_->open_region(memory)) return false;
  regions_.push_back(memory);
  return true;
}

void SoftUcQueuePair::fail_pair(std::string what) {
  if (failure_.empty()) failure_ = std::move(what);
}

void SoftUcQueuePair::check_request(const WorkRequest& request, const WorkQueue& queue, int depth) const {
  COPRIME_CHECK(request.bytes <= limits_.max_message_bytes, "{} bytes in one message of at most {}", request.bytes,
                limits_.max_message_bytes);
  COPRIME_CHECK(
      request.bytes == 0 || std::ranges::any_of(regions_, [&](const auto& region) { return within(request, region); }),
      "the {} bytes of request {} are not registered", request.bytes, request.id);
  const size_t frames = frames_of(limits_, request.bytes);
  COPRIME_CHECK(queue.frames + frames <= static_cast<size_t>(depth), "{} entries are taken of {}, {} more are wanted",
                queue.frames, depth, frames);
}

void SoftUcQueuePair::take_entry(WorkQueue& queue, const WorkRequest& request) {
  queue.posted.push_back(request);
  queue.frames += frames_of(limits_, request.bytes);
  queue.bytes += request.bytes;
}

void SoftUcQueuePair::post_recv(std::span<const WorkRequest> chain) {
  if (!failure_.empty()) return;
  const bool early = state_ == State::kInit || state_ == State::kReadyToReceive;
  if (state_ != State::kReadyToSend && !(early && device_->options().receives_before_rts)) {
    return fail_pair(fmt::format("is not reached: the device refused a receive in state {}", state_name(state_)));
  }
  move_sends();
  receive_arrived();
  for (const WorkRequest& request : chain) {
    check_request(request, receives_, limits_.receive_depth);
    COPRIME_CHECK(receives_.bytes + request.bytes <= limits_.max_posted_bytes,
                  "{} bytes are posted of {}, {} more are wanted", receives_.bytes, limits_.max_posted_bytes,
                  request.bytes);
    take_entry(receives_, request);
  }
}

void SoftUcQueuePair::post_send(std::span<const WorkRequest> chain) {
  if (!failure_.empty()) return;
  if (state_ != State::kReadyToSend) {
    return fail_pair(fmt::format("is not reached: the device refused a send in state {}", state_name(state_)));
  }
  const bool early = device_->options().completes_sends_early;
  if (early) move_sends();
  for (const WorkRequest& request : chain) {
    check_request(request, sends_, limits_.send_depth);
    take_entry(sends_, request);
    ++sends_posted_;
    if (early) complete(sends_, request, {.kind = Completion::Kind::kSend, .id = request.id});
  }
  if (early) return;
  sends_may_leave_ = sends_posted_;
  move_sends();
}

void SoftUcQueuePair::complete(WorkQueue& queue, const WorkRequest& request, Completion completion) {
  const bool told = completion.kind == Completion::Kind::kReceive || request.signaled || limits_.completes_unsignaled;
  const size_t frames = frames_of(limits_, request.bytes) + std::exchange(queue.frames_untold, 0);
  const uint64_t newest_id = queue.posted.empty() ? request.id : queue.posted.back().id;
  if (!told || !completions_.push({completion, frames}, newest_id)) queue.frames_untold = frames;
}

void SoftUcQueuePair::move_sends() {
  if (!wire_) return;
  while (sends_left_ < sends_may_leave_) {
    const WorkRequest request = sends_.posted.front();
    if (!wire_->send({request.data, request.bytes}, limits_.carries_tags ? request.tag : 0)) return;
    ++sends_left_;
    sends_.posted.pop_front();
    sends_.bytes -= request.bytes;
    if (!device_->options().completes_sends_early) {
      complete(sends_, request, {.kind = Completion::Kind::kSend, .id = request.id});
    }
  }
}

void SoftUcQueuePair::receive_arrived() {
  if (!wire_) return;
  if (line_.idle()) {
    while (failure_.empty()) {
      const auto message = wire_->receive();
      if (!message) break;
      deliver(message->payload, message->tag);
    }
  } else {
    const int64_t time_us = now_us();
    while (!line_.full()) {
      const auto message = wire_->receive();
      if (!message) break;
      line_.put(message->payload, message->tag, message->sent_us, time_us);
    }
    while (failure_.empty()) {
      const auto message = line_.take(time_us);
      if (!message) break;
      deliver(message->payload, message->tag);
    }
    if (timer_) arm_timer();
  }
  if (!wire_->failure().empty()) fail_pair(wire_->failure());
}

void SoftUcQueuePair::deliver(std::span<const std::byte> message, uint32_t tag) {
  if (silent_) {
    ++counts_.swallowed;
    return;
  }
  if (receives_.posted.empty()) {
    ++counts_.unposted;
    silent_ = device_->options().loss_is_final;
    return;
  }
  const WorkRequest request = receives_.posted.front();
  Completion completion = {.kind = Completion::Kind::kReceive, .id = request.id, .bytes = message.size(), .tag = tag};
  if (message.size() > request.bytes || frames_of(limits_, message.size()) != frames_of(limits_, request.bytes)) {
    completion.status = kSoftUcLengthError;
    silent_ = true;
  } else {
    if (!message.empty()) std::memcpy(request.data, message.data(), message.size());
    ++counts_.delivered;
  }
  receives_.posted.pop_front();
  receives_.bytes -= request.bytes;
  complete(receives_, request, completion);
}

int SoftUcQueuePair::poll(std::span<Completion> completions) {
  if (!failure_.empty()) return 0;
  move_sends();
  receive_arrived();
  int count = 0;
  while (failure_.empty() && count < static_cast<int>(completions.size()) && !completions_.empty()) {
    const auto [completion, frames] = completions_.pop();
    (completion.kind == Completion::Kind::kSend ? sends_ : receives_).frames -= frames;
    completions[static_cast<size_t>(count++)] = completion;
    if (completion.status == kSoftUcSuccess) continue;
    fail_pair(completion.status == kSoftUcLengthError
                  ? fmt::format("sent {} bytes, which do not fit the receive that they met", completion.bytes)
                  : fmt::format("is not reached: a completion has status {}", completion.status));
  }
  sends_may_leave_ = sends_posted_;
  return count;
}

// The order of messages is kept: while one is on its way, nothing else can arrive.
pollfd SoftUcQueuePair::wait_on() const {
  const bool sending = sends_left_ < sends_posted_;
  if (!wire_ || (wire_->ended() && line_.next_due_us() < 0 && !sending)) return {.fd = -1, .events = 0, .revents = 0};
  if (line_.next_due_us() >= 0 && !sending) return {.fd = timer_.get(), .events = POLLIN, .revents = 0};
  return {.fd = wire_->fd(), .events = static_cast<short>(POLLIN | (sending ? POLLOUT : 0)), .revents = 0};
}

void SoftUcQueuePair::arm_timer() {
  const int64_t due_us = line_.next_due_us();
  if (due_us < 0 || due_us == timer_us_) return;
  timer_us_ = due_us;
  const int64_t expires_us = std::max<int64_t>(due_us, 1);  // 0 would disarm it
  itimerspec at = {};
  at.it_value = {.tv_sec = expires_us / 1'000'000, .tv_nsec = expires_us % 1'000'000 * 1000};
  COPRIME_CHECK(::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &at, nullptr) == 0, "errno {}", errno);
}

std::unique_ptr<SoftUcQueuePair> connect_soft_uc(std::shared_ptr<SoftUcDevice> device, UniqueFd socket) {
  auto pair = std::make_unique<SoftUcQueuePair>(std::move(device));
  pair->to_init();
  pair->to_ready_to_receive(std::move(socket));
  pair->to_ready_to_send();
  return pair;
}

std::pair<std::unique_ptr<SoftUcQueuePair>, std::unique_ptr<SoftUcQueuePair>> connect_soft_uc(
    std::shared_ptr<SoftUcDevice> a, std::shared_ptr<SoftUcDevice> b) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    fail(ErrorKind::kLink, "two software queue pairs cannot be joined: {}", errno_text(errno));
  }
  UniqueFd first(ends[0]), second(ends[1]);
  auto end_a = connect_soft_uc(std::move(a), std::move(first));
  return {std::move(end_a), connect_soft_uc(std::move(b), std::move(second))};
}

}  // namespace coprime
