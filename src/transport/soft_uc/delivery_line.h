// What happens to messages between the socket and the queue pair: some are lost, changed, repeated or swapped, and each
// takes its time. The order of what is put is kept, and its delays depend on the seed and on the messages' number only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "transport/soft_uc/options.h"

namespace coprime {

class DeliveryLine {
 public:
  explicit DeliveryLine(const SoftUcOptions& options, uint64_t seed);

  // Nothing ever happens to a message: it need not be put.
  bool idle() const { return idle_; }

  // The holder of a full line takes nothing more from the socket for now.
  bool full() const { return held_bytes_ >= kMaxHeldBytes; }

  void put(std::span<const std::byte> payload, uint32_t tag, int64_t sent_us, int64_t time_us);

  // The next message that has arrived by now; valid until the next call.
  struct Arrived {
    std::span<const std::byte> payload;
    uint32_t tag = 0;
  };
  std::optional<Arrived> take(int64_t time_us);

  // When take() will have something; negative: not before another put().
  int64_t next_due_us() const { return held_.empty() ? -1 : held_.front().due_us; }

 private:
  static constexpr size_t kMaxHeldBytes = 8 << 20;
  struct Message {
    std::vector<std::byte> payload;
    uint32_t tag = 0;
  };
  struct Held {
    Message message;
    int64_t due_us;
  };

  void hold(Message message, int64_t left_us);
  void flip_bit(std::vector<std::byte>& payload);
  uint64_t random_below(uint64_t limit) { return limit == 0 ? 0 : random_() % limit; }

  SoftUcDelay delay_;
  std::vector<SoftUcFault> faults_;  // of messages
  bool idle_;
  std::mt19937_64 random_;

  uint64_t messages_ = 0;           // that were put
  std::optional<Message> swapped_;  // waits for the next message, and follows it
  std::deque<Held> held_;
  size_t held_bytes_ = 0;
  Message taken_;
};

}  // namespace coprime
