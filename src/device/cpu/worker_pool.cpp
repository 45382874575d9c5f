#include "device/cpu/worker_pool.h"

#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace coprime {
namespace {

constexpr int kSpins = 4000;  // some 50 to 100 us: longer than the serial parts of a step
constexpr int kYields = 20;

void pin(pthread_t thread, const std::vector<int>& cores, size_t index) {
  if (index >= cores.size() || cores[index] < 0 || cores[index] >= CPU_SETSIZE) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(cores[index]), &set);
  pthread_setaffinity_np(thread, sizeof set, &set);
}

// Sleeps while *word is `value`; may return early.
void futex_wait(std::atomic<uint32_t>* word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<uint32_t>* word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

WorkerPool::WorkerPool(int threads, const std::vector<int>& cores)
    : spins_(threads <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins : 0),
      parts_(new Part[static_cast<size_t>(threads)]) {
  pin(pthread_self(), cores, 0);
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { work(i); });
    pin(workers_.back().native_handle(), cores, static_cast<size_t>(i));
  }
}

WorkerPool::~WorkerPool() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(&generation_);
  for (std::thread& worker : workers_) worker.join();
}

bool WorkerPool::claim(int part, uint32_t region) {
  uint32_t last = region - 1;
  return parts_[static_cast<size_t>(part)].claimed.compare_exchange_strong(last, region, std::memory_order_relaxed);
}

template <class Done>
bool WorkerPool::spin_until(const Done& done) const {
  for (int i = 0; i < spins_ + kYields; ++i) {
    if (done()) return true;
    if (i < spins_) {
      _mm_pause();
    } else {
      sched_yield();
    }
  }
  return done();
}

void WorkerPool::run_erased(Job job, const void* context) {
  job_ = job;
  context_ = context;
  pending_.store(static_cast<uint32_t>(threads()), std::memory_order_relaxed);
  const uint32_t region = generation_.fetch_add(1, std::memory_order_seq_cst) + 1;
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(&generation_);
  job(context, 0);
  uint32_t done = 1;
  for (int part = 1; part < threads(); ++part) {
    if (!claim(part, region)) continue;
    job(context, part);
    ++done;
  }
  if (pending_.fetch_sub(done, std::memory_order_acquire) > done) wait_for_workers();
}

void WorkerPool::wait_for_workers() {
  if (spin_until([&] { return pending_.load(std::memory_order_acquire) == 0; })) return;
  caller_sleeps_.store(true, std::memory_order_seq_cst);
  while (const uint32_t left = pending_.load(std::memory_order_seq_cst)) futex_wait(&pending_, left);
  caller_sleeps_.store(false, std::memory_order_relaxed);
}

void WorkerPool::work(int part) {
  uint32_t seen = 0;
  while (true) {
    if (!spin_until([&] { return generation_.load(std::memory_order_acquire) != seen; })) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      while (generation_.load(std::memory_order_seq_cst) == seen) futex_wait(&generation_, seen);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (!claim(part, seen)) continue;  // the caller was faster
    job_(context_, part);
    const bool last = pending_.fetch_sub(1, std::memory_order_seq_cst) == 1;
    if (last && caller_sleeps_.load(std::memory_order_seq_cst)) futex_wake_all(&pending_);
  }
}

}  // namespace coprime
