// The cables between test hosts: a thread that carries packets from each host's card to the one they are addressed to,
// late, not at all, or at once, as each way's settings say. Host h has the address whose last byte is h + 1; packets to
// nobody, and what is not IPv4, are dropped.
//
// A way keeps the order of its packets, as a cable does, and holds a bounded number of them. Settings may change at any
// time from other threads; they hold for packets that arrive afterwards, a cut also for those on their way.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace coprime {

class Relay {
 public:
  explicit Relay(std::vector<int> cards);  // which must outlive it
  ~Relay();
  Relay(const Relay&) = delete;

  struct Way {
    std::atomic<int64_t> delay_us{0};
    std::atomic<double> loss{0};  // the share of packets that are dropped
    std::atomic<bool> cut{false};
    std::atomic<uint64_t> carried{0}, dropped{0};  // counted by the relay
  };
  Way& way(int from, int to) { return *ways_[index(from, to)]; }

 private:
  using Packet = std::vector<std::byte>;
  struct Queued {
    int64_t due_us;
    Packet packet;
  };

  size_t index(int from, int to) const { return static_cast<size_t>(from) * cards_.size() + static_cast<size_t>(to); }
  void run();
  void receive(int from);
  int64_t deliver_due();  // returns when the next packet is due; -1: none waits
  void deliver(int to, Way& way, const Packet& packet);

  std::vector<int> cards_;
  std::vector<std::unique_ptr<Way>> ways_;
  std::vector<std::deque<Queued>> queues_;  // of each way; the thread's alone
  std::mt19937 random_{1};
  UniqueFd wake_;  // becomes readable when the thread shall end
  std::thread thread_;
};

}  // namespace coprime
