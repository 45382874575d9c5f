#include "transport/verbs/warm_up.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

// What a message says in every 8 bytes, so that the whole of it is checked.
uint64_t word(int attempt, int round, size_t index) {
  return 0x5741524D00000000ull | static_cast<uint64_t>(attempt) << 24 | static_cast<uint64_t>(round) << 16 | index;
}

void fill(std::span<std::byte> message, int attempt, int round) {
  for (size_t at = 0; at + 8 <= message.size(); at += 8) {
    const uint64_t value = word(attempt, round, at / 8);
    std::memcpy(message.data() + at, &value, 8);
  }
}

// The round that a message is of, 1 to `last`; nothing when its content is another.
std::optional<int> round_of(std::span<const std::byte> message, int attempt, int last) {
  uint64_t first = 0;
  std::memcpy(&first, message.data(), std::min<size_t>(message.size(), 8));
  const int round = static_cast<int>(first >> 16 & 0xff);
  if (round < 1 || round > last) return std::nullopt;
  for (size_t at = 0; at + 8 <= message.size(); at += 8) {
    const uint64_t expected = word(attempt, round, at / 8);
    if (std::memcmp(message.data() + at, &expected, 8) != 0) return std::nullopt;
  }
  return round;
}

struct Report {
  uint8_t confirmed, sends_complete, broken;
};

// One side of one attempt.
class Side {
 public:
  Side(VerbsQueuePair& pair, std::span<std::byte> out, std::span<std::byte> in, int attempt)
      : pair_(pair), out_(out), in_(in), attempt_(attempt) {}

  void post_receive() {
    if (receive_posted_ || confirmed_ || !problem_.empty()) return;
    const WorkRequest request = {.id = 0, .data = in_.data(), .bytes = in_.size()};
    pair_.post_recv({&request, 1});
    receive_posted_ = true;
    note_failure();
  }

  void send(int round) {
    if (!problem_.empty()) return;
    fill(out_, attempt_, round);
    const WorkRequest request = {.id = 0, .data = out_.data(), .bytes = out_.size()};
    pair_.post_send({&request, 1});
    ++sends_outstanding_;
    note_failure();
  }

  // Until the round's message is here and all sends are complete, or until the deadline.
  void poll(int round, int64_t deadline_us) {
    while (problem_.empty() && !(confirmed_ && sends_complete()) && now_us() < deadline_us) {
      std::array<Completion, 8> completions;
      const int count = pair_.poll(completions);
      for (int i = 0; i < count && problem_.empty(); ++i) {
        const Completion& completion = completions[static_cast<size_t>(i)];
        if (completion.kind == Completion::Kind::kSend) {
          --sends_outstanding_;
        } else {
          receive_posted_ = false;
          confirmed_ = accept(completion.bytes, round);
          post_receive();  // unless confirmed; the peer may send as soon as it has the report
        }
      }
      note_failure();
      if (count == 0) std::this_thread::yield();  // the peer may need this core
    }
  }

  bool confirmed() const { return confirmed_; }
  bool sends_complete() const { return sends_outstanding_ == 0; }
  const std::string& problem() const { return problem_; }

 private:
  // Whether it is the round's message; one of an earlier round was only late.
  bool accept(size_t bytes, int round) {
    const std::optional<int> from = bytes == in_.size() ? round_of(in_, attempt_, round) : std::nullopt;
    if (!from) problem_ = fmt::format("a message of {} bytes arrived with other content than was sent", bytes);
    return from == round;
  }

  void note_failure() {
    if (problem_.empty() && !pair_.failure().empty()) problem_ = "the pair " + pair_.failure();
  }

  VerbsQueuePair& pair_;
  std::span<std::byte> out_, in_;
  int attempt_;
  bool receive_posted_ = false, confirmed_ = false;
  int sends_outstanding_ = 0;
  std::string problem_;
};

}  // namespace

std::string WarmUp::run(VerbsQueuePair& pair, SetupStream& stream, int attempt) {
  if (!pair.register_memory(memory_)) {
    fail(ErrorKind::kLink, "reg_mr of {} bytes failed: {}; raise the limit of locked memory (ulimit -l)",
         memory_.size(), errno_text(errno));
  }
  const size_t bytes = std::min(kBytes, pair.limits().max_message_bytes);
  const std::span<std::byte> memory(memory_);
  Side side(pair, memory.first(bytes), memory.subspan(kBytes, bytes), attempt);
  side.post_receive();
  stream.swap(SetupStep::kPosted, attempt, uint8_t{0});

  const int rounds = pair.reliable() ? 1 : kUcRounds;
  const int round_ms = pair.reliable() ? gate_timeout_ms_ : kUcRoundMs;
  Report peers = {};
  for (int round = 1; round <= rounds; ++round) {
    if (peers.confirmed == 0 && side.sends_complete()) side.send(round);
    side.poll(round, now_us() + 1000ll * round_ms);
    const Report ours = {side.confirmed(), side.sends_complete(), !side.problem().empty()};
    peers = stream.swap(SetupStep::kWarm, attempt, ours, round_ms);
    if (ours.broken != 0) return side.problem();
    if (peers.broken != 0) return "the peer's end of the pair failed";
    const bool arrived = ours.confirmed != 0 && peers.confirmed != 0;
    if (arrived && ours.sends_complete != 0 && peers.sends_complete != 0) {
      pair.release_memory(memory_);
      return {};
    }
  }
  const char* const what = !side.confirmed() && peers.confirmed == 0 ? "nothing arrived at either end"
                           : !side.confirmed()                       ? "nothing arrived from the peer"
                           : peers.confirmed == 0                    ? "nothing arrived at the peer"
                                                                     : "not all sends were completed";
  return fmt::format("{} within {} ms", what, rounds * round_ms);
}

}  // namespace coprime
