// A bounded queue of slots from one PE to another, without locks.
//
// One thread writes, one reads. `written_` is stored by the writer alone, `read_` by the reader alone; slot n lies at
// n mod slots. The writer fills a slot only where written - read < slots, after it has loaded `read_` with acquire: the
// reader released that value after its last look at the slot, so that no slot is overwritten while it is read. It
// publishes the slot by storing `written_` with release, which the reader loads with acquire before it looks: so it
// sees the whole slot. Both only grow; 64 bits do not wrap.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

namespace coprime::host_mesh {

class SlotQueue {
 public:
  // Without data only sizes pass.
  SlotQueue(int64_t slots, int64_t slot_bytes, bool with_data)
      : slots_(static_cast<uint64_t>(slots)),
        slot_bytes_(static_cast<size_t>(slot_bytes)),
        sizes_(std::make_unique<uint32_t[]>(slots_)),
        data_(with_data ? std::make_unique<std::byte[]>(slots_ * slot_bytes_) : nullptr) {}

  size_t slot_bytes() const { return slot_bytes_; }

  // The writer. false: there is no room.
  bool push(const std::byte* from, size_t bytes) {
    const uint64_t number = written_.load(std::memory_order_relaxed);
    if (number - read_.load(std::memory_order_acquire) == slots_) return false;
    sizes_[number % slots_] = static_cast<uint32_t>(bytes);
    if (data_) std::memcpy(data_.get() + number % slots_ * slot_bytes_, from, bytes);
    written_.store(number + 1, std::memory_order_release);
    return true;
  }

  // The reader. The bytes of the slot that it took; 0: there is none.
  size_t pop(std::byte* into) {
    const uint64_t number = read_.load(std::memory_order_relaxed);
    if (number == written_.load(std::memory_order_acquire)) return 0;
    const size_t bytes = sizes_[number % slots_];
    if (data_) std::memcpy(into, data_.get() + number % slots_ * slot_bytes_, bytes);
    read_.store(number + 1, std::memory_order_release);
    return bytes;
  }

  bool empty() const { return read_.load(std::memory_order_acquire) == written_.load(std::memory_order_acquire); }

 private:
  const uint64_t slots_;
  const size_t slot_bytes_;
  const std::unique_ptr<uint32_t[]> sizes_;
  const std::unique_ptr<std::byte[]> data_;
  alignas(64) std::atomic<uint64_t> written_ = 0;
  alignas(64) std::atomic<uint64_t> read_ = 0;
};

}  // namespace coprime::host_mesh
