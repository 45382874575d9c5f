// A rank's end of its conversation with the front: what the front says next, and what the rank says to it. A front that
// says stop, or is gone, ends the rank's service from wherever it is.
#pragma once

#include <exception>
#include <optional>
#include <span>
#include <string>

#include "engine/messages.h"
#include "engine/rank.h"

namespace coprime {

// Thrown by FrontLine and caught by run_rank alone; no std::exception, so that whoever reports a failure lets it pass.
struct FrontEnded {
  RankEnding ending;
};

class FrontLine {
 public:
  FrontLine(Channel& control, const ProgressPage& progress) : control_(control), progress_(progress) {}

  // The next message. For the first awake_us it polls and yields instead of sleeping.
  void receive_into(Message& message, int64_t awake_us);
  Message receive();
  // For who is long about something else: throws FrontEnded if the world is over, and keeps any other message for the
  // next receive(). One system call.
  void look();
  // Error(kInternal) for a message of another type, which the next receive() then gives.
  Message expect(MessageType type);
  // The front is to say something within so long: how to go on after a failed step, or the next one of a sequence.
  // Until it has, a front that was not heard for silence_us is given up; the kernel would take much longer. Afterwards
  // it is idle, and whoever stops it for a while or changes a cable ends no world.
  void expect_answer(int64_t silence_us, int64_t within_us);
  bool has_unexpected() const { return unexpected_.has_value(); }

  // Error(kLink) when the front is gone.
  void send(MessageType type, std::span<const std::byte> bytes) { control_.send(static_cast<uint32_t>(type), bytes); }
  template <class T>
  void send_json(MessageType type, const T& value) {
    const std::string text = to_json(value);
    send(type, std::as_bytes(std::span(text)));
  }
  void report(const std::string& line);  // for a person

 private:
  static void end_if_over(Channel::Received received, const Message& message);

  Channel& control_;
  const ProgressPage& progress_;
  int64_t silence_us_ = 0, expected_until_us_ = 0;  // an answer is expected: how long the front may be silent
  std::optional<Message> unexpected_;
};

RankFailure failure_of(const std::exception& error);

}  // namespace coprime
