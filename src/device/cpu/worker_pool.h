// A fork-join pool: run() gives every thread, the caller included, one call, and returns when all are done. Owns the
// threads. One thread at a time may call run(). Workers spin a while for the next region, then yield, then sleep: an
// idle device uses no CPU. Nothing here allocates or locks after construction; the kernel is entered only to yield, to
// sleep and to wake sleepers.
//
// Proof of the hand-over: the caller writes the job, then `pending_`, then adds 1 to `generation_` (seq_cst); a worker
// that sees the new generation (acquire) sees both. Each worker runs the job once and subtracts 1 from `pending_`
// (release); the caller returns when it reads 0 (acquire), so that all writes of the workers are visible, and no worker
// still reads the job: reuse is safe. A worker sleeps only by waiting for `generation_` to differ from what it last
// saw, after it counted itself in `sleepers_`; the caller reads `sleepers_` after the new generation is stored. In the
// one order of the seq_cst operations either the caller sees the sleeper and wakes it, or the worker's wait sees the
// new generation and does not sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace coprime {

class WorkerPool {
 public:
  // `cores[i]` is the core of thread i, 0 being the thread that makes the pool; empty: not pinned. A core that the
  // system refuses is left to the scheduler.
  WorkerPool(int threads, const std::vector<int>& cores);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool();

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // job(thread) once on each of threads() threads.
  template <class Job>
  void run(const Job& job) {
    if (workers_.empty()) return job(0);
    run_erased([](const void* context, int thread) { (*static_cast<const Job*>(context))(thread); }, &job);
  }

  // job(item, thread) once for each item in [0, count), handed out as threads come for more.
  template <class Job>
  void for_each(int64_t count, const Job& job) {
    if (workers_.empty() || count <= 1) {
      for (int64_t item = 0; item < count; ++item) job(item, 0);
      return;
    }
    next_item_.store(0, std::memory_order_relaxed);  // published with the region
    run([&](int thread) {
      for (int64_t item; (item = next_item_.fetch_add(1, std::memory_order_relaxed)) < count;) job(item, thread);
    });
  }

 private:
  using Job = void (*)(const void* context, int thread);
  void run_erased(Job job, const void* context);
  void work(int thread);

  const int spins_;  // none where threads have to share cores
  Job job_ = nullptr;
  const void* context_ = nullptr;
  bool stop_ = false;  // published like a job
  alignas(64) std::atomic<uint32_t> generation_ = 0;
  std::atomic<int> sleepers_ = 0;
  alignas(64) std::atomic<int> pending_ = 0;
  alignas(64) std::atomic<int64_t> next_item_ = 0;
  std::vector<std::thread> workers_;  // last: started when the rest is there
};

}  // namespace coprime
