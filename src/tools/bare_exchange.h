// The floor of an exchange: what N ranks of one host cannot do faster, with nothing of an engine around it. No sequence
// is checked, no deadline kept, no error told: for measuring only.
//
// Each rank copies its vector out, waits for all others, and adds all vectors in rank order. Over shared memory it is
// copy, flag, sum; over sockets each rank sends its vector to every other and reads theirs. Two slots by parity are
// enough: a rank writes a slot again after it has seen all flags of the exchange between, and a peer sets that flag
// after its last read of the slot.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/unique_fd.h"

namespace coprime {

class BareExchange {
 public:
  virtual ~BareExchange() = default;
  // sum = the vectors of all ranks, added in rank order; `in` is this rank's. The floats of `count` are the same
  // everywhere.
  virtual void run(const float* in, float* sum, size_t count) = 0;
};

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
// every look.
class Spin {
 public:
  explicit Spin(bool own_core) : looks_(own_core ? 4000 : 0) {}
  void pause() {
    if (looks_ == 0) {
      ::sched_yield();
      return;
    }
    --looks_;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }

 private:
  int looks_;
};

}  // namespace bare

// sum[i] = ((terms[0][i] + terms[1][i]) + ...).
inline void add_in_rank_order(std::span<const float* const> terms, float* sum, size_t count) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return bare::add_avx2(terms, sum, count);
#endif
  bare::add(terms, sum, count);
}

// Memory that processes forked later share: a flag a rank, and two slots a rank.
class BareMemory {
 public:
  BareMemory(int ranks, size_t slot_bytes) : ranks_(ranks), stride_((slot_bytes + 4095) / 4096 * 4096) {
    COPRIME_CHECK(ranks >= 1 && ranks <= kMaxRanks, "{} ranks", ranks);
    bytes_ = kFlagBytes + 2 * static_cast<size_t>(ranks) * stride_;
    void* const memory =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) fail(ErrorKind::kUsage, "no {} bytes of memory for the floor: use fewer ranks", bytes_);
    data_ = static_cast<std::byte*>(memory);
  }
  BareMemory(const BareMemory&) = delete;
  BareMemory& operator=(const BareMemory&) = delete;
  ~BareMemory() { ::munmap(data_, bytes_); }

  int ranks() const { return ranks_; }
  std::atomic<uint64_t>& flag(int rank) const {
    return *reinterpret_cast<std::atomic<uint64_t>*>(data_ + 128 * static_cast<size_t>(rank));
  }
  float* slot(int rank, uint64_t number) const {
    return reinterpret_cast<float*>(data_ + kFlagBytes + (2 * static_cast<size_t>(rank) + (number & 1)) * stride_);
  }

 private:
  static constexpr size_t kFlagBytes = 4096;
  static_assert(128 * kMaxRanks <= kFlagBytes);
  int ranks_;
  size_t stride_, bytes_ = 0;
  std::byte* data_ = nullptr;
};

class BareWindow final : public BareExchange {
 public:
  BareWindow(std::shared_ptr<const BareMemory> memory, int rank, bool own_core)
      : memory_(std::move(memory)), rank_(rank), own_core_(own_core) {}

  void run(const float* in, float* sum, size_t count) override {
    ++number_;
    std::memcpy(memory_->slot(rank_, number_), in, count * sizeof(float));
    memory_->flag(rank_).store(number_, std::memory_order_release);
    std::array<const float*, kMaxRanks> terms;
    bare::Spin spin(own_core_);
    for (int rank = 0; rank < memory_->ranks(); ++rank) {
      while (memory_->flag(rank).load(std::memory_order_acquire) < number_) spin.pause();
      terms[static_cast<size_t>(rank)] = memory_->slot(rank, number_);
    }
    add_in_rank_order({terms.data(), static_cast<size_t>(memory_->ranks())}, sum, count);
  }

 private:
  std::shared_ptr<const BareMemory> memory_;
  int rank_;
  bool own_core_;
  uint64_t number_ = 0;
};

class BareSockets final : public BareExchange {
 public:
  // mesh[r] is a connected stream socket to rank r, this rank's own is empty.
  BareSockets(std::vector<UniqueFd> mesh, int rank, size_t max_bytes, bool own_core)
      : mesh_(std::move(mesh)), rank_(rank), own_core_(own_core), theirs_(mesh_.size()) {
    for (std::vector<float>& vector : theirs_) vector.resize(max_bytes / sizeof(float));
  }

  void run(const float* in, float* sum, size_t count) override {
    const size_t bytes = count * sizeof(float), ranks = mesh_.size();
    std::array<size_t, kMaxRanks> sent{}, got{};
    bare::Spin spin(own_core_);
    for (bool complete = false; !complete;) {
      complete = true;
      for (size_t peer = 0; peer < ranks; ++peer) {
        if (static_cast<int>(peer) == rank_) continue;
        const int fd = mesh_[peer].get();
        if (sent[peer] < bytes)
          sent[peer] += moved(::send(fd, at(in, sent[peer]), bytes - sent[peer], MSG_DONTWAIT | MSG_NOSIGNAL));
        if (got[peer] < bytes)
          got[peer] += moved(::recv(fd, at(theirs_[peer].data(), got[peer]), bytes - got[peer], MSG_DONTWAIT));
        complete = complete && sent[peer] == bytes && got[peer] == bytes;
      }
      if (!complete) spin.pause();
    }
    std::array<const float*, kMaxRanks> terms;
    for (size_t peer = 0; peer < ranks; ++peer)
      terms[peer] = static_cast<int>(peer) == rank_ ? in : theirs_[peer].data();
    add_in_rank_order({terms.data(), ranks}, sum, count);
  }

 private:
  static const std::byte* at(const float* data, size_t bytes) {
    return reinterpret_cast<const std::byte*>(data) + bytes;
  }
  static std::byte* at(float* data, size_t bytes) { return reinterpret_cast<std::byte*>(data) + bytes; }
  static size_t moved(ssize_t result) {
    if (result > 0) return static_cast<size_t>(result);
    if (result < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    fail(ErrorKind::kLink, "a rank left the bare exchange");
  }

  std::vector<UniqueFd> mesh_;
  int rank_;
  bool own_core_;
  std::vector<std::vector<float>> theirs_;
};

// TCP over the loopback, one connection a pair of ranks: ends[r][q] is rank r's end of the connection to rank q.
inline std::vector<std::vector<UniqueFd>> loopback_mesh(int ranks) {
  const auto checked = [](int result, const char* what) {
    if (result < 0) fail(ErrorKind::kLink, "the loopback does not work: {}: {}", what, errno_text(errno));
    return result;
  };
  const auto stream = [&] { return UniqueFd(checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")); };
  std::vector<std::vector<UniqueFd>> ends(static_cast<size_t>(ranks));
  for (auto& row : ends) row.resize(static_cast<size_t>(ranks));
  for (size_t a = 0; a < ends.size(); ++a) {
    for (size_t b = a + 1; b < ends.size(); ++b) {
      const UniqueFd listener = stream();
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t length = sizeof address;
      auto* const generic = reinterpret_cast<sockaddr*>(&address);
      checked(::bind(listener.get(), generic, length), "bind");
      checked(::listen(listener.get(), 1), "listen");
      checked(::getsockname(listener.get(), generic, &length), "getsockname");
      ends[a][b] = stream();
      checked(::connect(ends[a][b].get(), generic, length), "connect");
      sockaddr_in dialled = {}, accepted = {};
      length = sizeof dialled;
      checked(::getsockname(ends[a][b].get(), reinterpret_cast<sockaddr*>(&dialled), &length), "getsockname");
      ends[b][a] = UniqueFd(
          checked(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&accepted), &length, SOCK_CLOEXEC), "accept"));
      if (accepted.sin_port != dialled.sin_port)
        fail(ErrorKind::kLink, "another program dialled port {} of the loopback: start again", ntohs(address.sin_port));
      const int on = 1;
      for (const UniqueFd* end : {&ends[a][b], &ends[b][a]})
        checked(::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "no delay");
    }
  }
  return ends;
}

}  // namespace coprime
