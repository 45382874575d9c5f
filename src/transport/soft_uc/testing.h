// What the tests of queue pairs over soft_uc share: registered buffers, single requests, two ends in one thread.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "transport/soft_uc/soft_uc_queue_pair.h"
#include "transport/testing.h"

namespace coprime::testing {

inline void post_receive(QueuePair& pair, uint64_t id, std::span<std::byte> buffer, uint64_t label = 0) {
  const WorkRequest request = {.id = id, .data = buffer.data(), .bytes = buffer.size(), .label = label};
  pair.post_recv({&request, 1});
}

inline void post_send(QueuePair& pair, uint64_t id, std::span<std::byte> buffer, uint64_t label = 0, uint32_t tag = 0) {
  const WorkRequest request = {.id = id, .data = buffer.data(), .bytes = buffer.size(), .tag = tag, .label = label};
  pair.post_send({&request, 1});
}

inline std::vector<Completion> poll(QueuePair& pair) {
  std::array<Completion, 64> completions;
  const int count = pair.poll(completions);
  return {completions.begin(), completions.begin() + count};
}

// The ids of the completions of one kind that poll() has, until it has none.
inline std::vector<uint64_t> poll_ids(QueuePair& pair, Completion::Kind kind) {
  std::vector<uint64_t> ids;
  for (auto told = poll(pair); !told.empty(); told = poll(pair)) {
    for (const Completion& completion : told) {
      if (completion.kind == kind) ids.push_back(completion.id);
    }
  }
  return ids;
}
inline std::vector<uint64_t> received_ids(QueuePair& pair) { return poll_ids(pair, Completion::Kind::kReceive); }
inline std::vector<uint64_t> sent_ids(QueuePair& pair) { return poll_ids(pair, Completion::Kind::kSend); }

// Ends a and b, each on a device of its own, with a megabyte of registered memory for both directions each. What `b` is
// told in its options happens to what `a` sends.
struct SoftUcEnds {
  static constexpr size_t kBytes = 1 << 20;

  explicit SoftUcEnds(const SoftUcOptions& of_both = {}) : SoftUcEnds(of_both, of_both) {}
  SoftUcEnds(const SoftUcOptions& of_a, const SoftUcOptions& of_b)
      : device_a(std::make_shared<SoftUcDevice>(of_a)),
        device_b(std::make_shared<SoftUcDevice>(of_b)),
        memory_a(2 * kBytes),
        memory_b(2 * kBytes) {
    std::tie(a, b) = connect_soft_uc(device_a, device_b);
    a->register_memory(memory_a);
    b->register_memory(memory_b);
  }

  std::span<std::byte> out(size_t bytes, size_t at = 0) { return std::span(memory_a).subspan(at, bytes); }
  std::span<std::byte> in(size_t bytes, size_t at = 0) { return std::span(memory_b).subspan(at, bytes); }

  // a sends a message of one byte.
  void send_byte(uint64_t id, uint8_t value) {
    out(1)[0] = std::byte{value};
    post_send(*a, id, out(1));
  }

  std::shared_ptr<SoftUcDevice> device_a, device_b;
  std::vector<std::byte> memory_a, memory_b;
  std::unique_ptr<SoftUcQueuePair> a, b;
};

}  // namespace coprime::testing
