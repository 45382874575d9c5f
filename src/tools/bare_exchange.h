// The floor of an exchange: what N ranks cannot do faster, with nothing of an engine around it. No sequence is checked,
// no deadline kept, nobody blamed: for measuring only.
//
// Each rank copies its vector out, waits for all others, and adds all vectors in rank order. Over shared memory it is
// copy, flag, sum; over sockets each rank sends its vector to every other and reads theirs; ranks may be joined either
// way. Two slots by parity are enough: a rank writes a slot again after it has seen all flags of the exchange between,
// and a peer sets that flag after its last read of the slot.
#pragma once

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/unique_fd.h"
#include "transport/shm/shm_region.h"

namespace coprime {

// Told now and then while an exchange waits how long nothing has moved (0: a byte did), and may end it by an exception.
using BareWatch = std::function<void(int64_t still_us)>;

namespace bare {

using Lanes = float __attribute__((vector_size(32), aligned(4)));

__attribute__((always_inline)) inline void add(std::span<const float* const> terms, float* sum, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    Lanes low = *reinterpret_cast<const Lanes*>(terms[0] + i), high = *reinterpret_cast<const Lanes*>(terms[0] + i + 8);
    for (const float* term : terms.subspan(1)) {
      low += *reinterpret_cast<const Lanes*>(term + i);
      high += *reinterpret_cast<const Lanes*>(term + i + 8);
    }
    *reinterpret_cast<Lanes*>(sum + i) = low;
    *reinterpret_cast<Lanes*>(sum + i + 8) = high;
  }
  for (; i < count; ++i) {
    float total = terms[0][i];
    for (const float* term : terms.subspan(1)) total += term[i];
    sum[i] = total;
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) inline void add_avx2(std::span<const float* const> terms, float* sum, size_t count) {
  add(terms, sum, count);
}
#endif

// Spins for about a hundred microseconds, where every rank has a core of its own, then offers the core to others at
// every look. The clock is read once in many looks.
class Spin {
 public:
  Spin(bool own_core, const BareWatch& watch) : spins_(own_core ? 4000 : 0), watch_(watch) {}
  void moved() {
    since_us_ = 0;
    if (watch_) watch_(0);
  }
  void pause() {
    if ((++looks_ & 1023) == 0 && watch_) look_at_the_clock();
    if (spins_ == 0) {
      ::sched_yield();
      return;
    }
    --spins_;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

 private:
  void look_at_the_clock() {
    const int64_t time_us = now_us();
    if (since_us_ == 0) since_us_ = time_us;
    watch_(std::max<int64_t>(time_us - since_us_, 1));
  }

  int spins_;
  const BareWatch& watch_;
  uint32_t looks_ = 0;
  int64_t since_us_ = 0;  // nothing has moved; 0: not looked yet
};

}  // namespace bare

// sum[i] = ((terms[0][i] + terms[1][i]) + ...).
inline void add_in_rank_order(std::span<const float* const> terms, float* sum, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return bare::add_avx2(terms, sum, count);
#endif
  bare::add(terms, sum, count);
}

// What joins one rank to the others, with nothing on the way. A peer is in `region_ranks` or has a socket; who is
// neither takes no part.
struct BareLinks {
  int rank = 0, ranks = 1;
  std::shared_ptr<const ShmRegion> region;  // memory alone: of its words only `published` is used, as a flag
  std::vector<int> region_ranks;            // in its order, this rank among them
  std::vector<UniqueFd> sockets;            // by rank, connected streams; empty where there is none
};

class BareExchange {
 public:
  // Vectors of max_bytes at most. Without a watch an exchange waits for ever.
  BareExchange(BareLinks links, size_t max_bytes, bool own_core, BareWatch watch = {})
      : links_(std::move(links)), own_core_(own_core), watch_(std::move(watch)) {
    links_.sockets.resize(static_cast<size_t>(links_.ranks));
    theirs_.resize(links_.sockets.size());
    for (size_t peer = 0; peer < theirs_.size(); ++peer) {
      if (links_.sockets[peer]) theirs_[peer].resize(max_bytes / sizeof(float));
    }
    if (!links_.region) return;
    COPRIME_CHECK(links_.region->slot_bytes() >= max_bytes, "slots of {} bytes", links_.region->slot_bytes());
    index_ = static_cast<int>(std::ranges::find(links_.region_ranks, links_.rank) - links_.region_ranks.begin());
  }

  // sum = the vectors of all ranks, added in rank order; `in` is this rank's. The floats of `count` are the same
  // everywhere.
  void run(const float* in, float* sum, size_t count) {
    ++number_;
    std::array<const float*, kMaxRanks> vectors{};
    vectors[static_cast<size_t>(links_.rank)] = in;
    if (links_.region) publish(in, count);
    bare::Spin spin(own_core_, watch_);
    move_over_sockets(in, count, spin);
    for (size_t peer = 0; peer < theirs_.size(); ++peer) {
      if (links_.sockets[peer]) vectors[peer] = theirs_[peer].data();
    }
    for (size_t index = 0; index < links_.region_ranks.size(); ++index) {
      const auto place = static_cast<int>(index);
      while (links_.region->control(place).published.load(std::memory_order_acquire) < number_) spin.pause();
      vectors[static_cast<size_t>(links_.region_ranks[index])] = slot(place);
    }
    std::array<const float*, kMaxRanks> terms;
    size_t members = 0;
    for (const float* vector : vectors) {
      if (vector != nullptr) terms[members++] = vector;
    }
    add_in_rank_order({terms.data(), members}, sum, count);
  }

 private:
  float* slot(int index) const {
    return reinterpret_cast<float*>(links_.region->slot(index, static_cast<int>(number_ & 1)));
  }
  void publish(const float* in, size_t count) {
    std::memcpy(slot(index_), in, count * sizeof(float));
    links_.region->control(index_).published.store(number_, std::memory_order_release);
  }

  void move_over_sockets(const float* in, size_t count, bare::Spin& spin) {
    const size_t bytes = count * sizeof(float);
    std::array<size_t, kMaxRanks> sent{}, got{};
    for (bool complete = false; !complete;) {
      complete = true;
      bool any = false;
      for (size_t peer = 0; peer < links_.sockets.size(); ++peer) {
        if (!links_.sockets[peer]) continue;
        const int fd = links_.sockets[peer].get();
        const size_t before = sent[peer] + got[peer];
        if (sent[peer] < bytes)
          sent[peer] += moved(::send(fd, at(in, sent[peer]), bytes - sent[peer], MSG_DONTWAIT | MSG_NOSIGNAL));
        if (got[peer] < bytes)
          got[peer] += moved(::recv(fd, at(theirs_[peer].data(), got[peer]), bytes - got[peer], MSG_DONTWAIT));
        any = any || sent[peer] + got[peer] != before;
        complete = complete && sent[peer] == bytes && got[peer] == bytes;
      }
      if (any) spin.moved();
      if (!complete) spin.pause();
    }
  }
  static const std::byte* at(const float* data, size_t bytes) {
    return reinterpret_cast<const std::byte*>(data) + bytes;
  }
  static std::byte* at(float* data, size_t bytes) { return reinterpret_cast<std::byte*>(data) + bytes; }
  static size_t moved(ssize_t result) {
    if (result > 0) return static_cast<size_t>(result);
    if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    fail(ErrorKind::kLink, "a rank left the bare exchange");
  }

  BareLinks links_;
  const bool own_core_;
  const BareWatch watch_;
  int index_ = 0;  // this rank's, in the region
  uint64_t number_ = 0;
  std::vector<std::vector<float>> theirs_;
};

// For ranks forked later: memory of all.
inline BareLinks bare_window(std::shared_ptr<const ShmRegion> region, int rank) {
  BareLinks links{.rank = rank, .ranks = region->ranks()};
  for (int member = 0; member < region->ranks(); ++member) links.region_ranks.push_back(member);
  links.region = std::move(region);
  return links;
}

}  // namespace coprime
