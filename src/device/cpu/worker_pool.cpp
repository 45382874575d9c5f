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
constexpr int kYields = 100;

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
    : spins_(threads <= static_cast<int>(std::thread::hardware_concurrency()) ? kSpins : 0) {
  pin(pthread_self(), cores, 0);
  for (int i = 1; i < threads; ++i) {
    workers_.emplace_back([this, i] { work(i); });
    pin(workers_.back().native_handle(), cores, static_cast<size_t>(i));
  }
}

WorkerPool::~WorkerPool() {
  stop_ = true;
  generation_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(&generation_);
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::run_erased(Job job, const void* context) {
  job_ = job;
  context_ = context;
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) futex_wake_all(&generation_);
  job(context, 0);
  for (int spins = 0; pending_.load(std::memory_order_acquire) > 0; ++spins) {
    if (spins < spins_) {
      _mm_pause();
    } else {
      sched_yield();  // more threads than cores: let the workers run
    }
  }
}

void WorkerPool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    for (int i = 0; i < spins_ + kYields && generation_.load(std::memory_order_acquire) == seen; ++i) {
      if (i < spins_) {
        _mm_pause();
      } else {
        sched_yield();
      }
    }
    if (generation_.load(std::memory_order_acquire) == seen) {
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      while (generation_.load(std::memory_order_seq_cst) == seen) futex_wait(&generation_, seen);
      sleepers_.fetch_sub(1, std::memory_order_relaxed);
    }
    ++seen;  // run() waits for every worker: no generation is missed
    if (stop_) return;
    job_(context_, thread);
    pending_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace coprime
