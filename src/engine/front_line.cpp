#include "engine/front_line.h"

#include <new>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr int kListenMs = 20;

}  // namespace

void FrontLine::receive_into(Message& message, int64_t awake_us) {
  if (unexpected_) {
    message = std::move(*unexpected_);
    unexpected_.reset();
    return;
  }
  const auto look_ms = [&] { return now_us() < expected_until_us_ ? kListenMs : -1; };
  Channel::Received received = control_.receive(message, look_ms(), awake_us);
  while (received == Channel::Received::kTimeout) {
    if (progress_.front_is_silent(silence_us_)) {
      throw FrontEnded{{RankEnding::Why::kFrontGone, ErrorKind::kLink,
                        "the front is not heard any more: see whether its host is up and the cable in its place"}};
    }
    received = control_.receive(message, look_ms());
  }
  expected_until_us_ = 0;
  end_if_over(received, message);
}

void FrontLine::end_if_over(Channel::Received received, const Message& message) {
  if (received == Channel::Received::kClosed)
    throw FrontEnded{{RankEnding::Why::kFrontGone, ErrorKind::kLink, "the front is gone"}};
  if (message.type != static_cast<uint32_t>(MessageType::kStop)) return;
  const std::string reason(message_text(message));
  throw FrontEnded{{reason.empty() ? RankEnding::Why::kDone : RankEnding::Why::kDismissed, ErrorKind::kLink, reason}};
}

void FrontLine::look() {
  if (unexpected_) return;
  Message message;
  const Channel::Received received = control_.receive(message, 0);
  if (received == Channel::Received::kTimeout) return;
  end_if_over(received, message);
  unexpected_ = std::move(message);
}

void FrontLine::expect_answer(int64_t silence_us, int64_t within_us) {
  if (progress_.kind() == ProgressPage::Kind::kFronts) return;  // it is of this host, and its kernel tells
  silence_us_ = silence_us;
  expected_until_us_ = now_us() + within_us;
}

Message FrontLine::receive() {
  Message message;
  receive_into(message, 0);
  return message;
}

Message FrontLine::expect(MessageType type) {
  Message message = receive();
  if (message.type == static_cast<uint32_t>(type)) return message;
  unexpected_ = std::move(message);
  fail(ErrorKind::kInternal, "expected a control message of type {}, found {}: run the same coprime on all hosts",
       static_cast<uint32_t>(type), unexpected_->type);
}

void FrontLine::report(const std::string& line) { send(MessageType::kReport, std::as_bytes(std::span(line))); }

RankFailure failure_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return {ours->kind(), ours->what()};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {ErrorKind::kInternal, "not enough memory: use a shorter context or more ranks on other machines"};
  return {ErrorKind::kInternal, error.what()};
}

}  // namespace coprime
