// Keeps the progress pages of the hosts of a world alike. Every other host has a ProgressMirror with one connection to
// the front's ProgressHub; each side has a thread of its own, so that a rank that computes is still seen to move.
//
// The mirror copies its host's counters and claims to the front, about every 20 ms if they have changed, and writes
// what it hears of the others into its page; the hub settles claims (the first wins), keeps the front's page, and
// passes all on at once. Counters are finished work: they are copied and never advanced here, so that a host whose
// ranks stand still is seen to stand still. A heartbeat goes out four times a second, so that the kernel notices a cut
// cable, and each side knows whether the other is still there to be waited for; it counts as nobody's progress.
//
// A frame is the sender's whole state in a fixed size, so that a slow reader gets the newest one and never delays
// anybody.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "base/unique_fd.h"
#include "transport/progress_page.h"

namespace coprime {

constexpr int64_t kHeartbeatUs = 250'000;

// Whose process was not heard for so long is cut off, stopped or starved: as long as a peer in a gate may stand still,
// and some heartbeats at least.
constexpr int64_t silence_us(int gate_timeout_ms) {
  return std::max(int64_t{gate_timeout_ms} * 1000, 3 * kHeartbeatUs);
}

// On another host than the front's.
class ProgressMirror {
 public:
  // `page` mirrors; `mine` has a bit for each rank of this host; the socket leads to the hub and is authenticated.
  ProgressMirror(std::shared_ptr<const ProgressPage> page, uint32_t mine, UniqueFd socket);
  ~ProgressMirror();  // ends the thread, and hangs up: the front sees these ranks gone
  ProgressMirror(const ProgressMirror&) = delete;
  ProgressMirror& operator=(const ProgressMirror&) = delete;

 private:
  void run();
  std::shared_ptr<const ProgressPage> page_;
  uint32_t mine_;
  UniqueFd socket_, wake_;
  std::thread thread_;
};

// The front's.
class ProgressHub {
 public:
  explicit ProgressHub(std::shared_ptr<const ProgressPage> page);  // the front's page
  ~ProgressHub();
  ProgressHub(const ProgressHub&) = delete;
  ProgressHub& operator=(const ProgressHub&) = delete;

  // A host with these ranks. When its connection ends, or it says what is no frame, its ranks are marked gone at once.
  void add(uint32_t ranks, UniqueFd socket);

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace coprime
