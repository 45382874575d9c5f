// A fork-join pool: run() has one part for each thread, and returns when all are done. Owns the threads. One thread at
// a time may call run(). Part i goes to thread i (so that it finds in its caches what it read last time), unless the
// caller is done with its own part before thread i has begun: then the caller takes it. So a region does not wait for a
// thread whose core others use; it waits only for those that are at work.
//
// Who waits spins a while, then yields, then sleeps: an idle device uses no CPU, and a thread that is held up leaves
// its core to others. Nothing here allocates or locks after construction; the kernel is entered only to yield, to sleep
// and to wake sleepers.
//
// Proof of the hand-over. Regions are numbered by `generation_`; `claimed` of a part holds the last region in which
// somebody took it, and is the last region for every part when a region begins, since a region ends only when all parts
// are taken. The caller writes the job, then `pending_`, then adds 1 to `generation_` (seq_cst). A part belongs to who
// changes `claimed` from region - 1 to region. A worker knows of a region by `generation_` (acquire), so it sees that
// region's job; if it comes late, `claimed` is already the region's number or more, and it neither reads the job nor
// counts. One that has claimed counts `pending_` down (release) when it is done, and the caller returns when it reads 0
// (acquire): all writes of the parts are visible, and nobody still reads the job, so that reuse is safe.
// A worker sleeps only by waiting for `generation_` to differ from what it last saw, after it counted itself in
// `sleepers_`; the caller reads `sleepers_` after the new generation is stored. In the one order of the seq_cst
// operations either the caller sees the sleeper and wakes it, or the worker's wait sees the new generation and does not
// sleep. The caller's sleep on `pending_`, announced by `caller_sleeps_`, is the same with the roles exchanged.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
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

  // job(part) once for each part in [0, threads()); no two threads have the same part.
  template <class Job>
  void run(const Job& job) {
    if (workers_.empty()) return job(0);
    run_erased([](const void* context, int thread) { (*static_cast<const Job*>(context))(thread); }, &job);
  }

  // job(item, part) once for each item in [0, count), handed out as threads come for more.
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
  using Job = void (*)(const void* context, int part);
  struct alignas(64) Part {
    std::atomic<uint32_t> claimed = 0;
  };
  void run_erased(Job job, const void* context);
  void work(int part);
  bool claim(int part, uint32_t region);
  void wait_for_workers();
  template <class Done>
  bool spin_until(const Done& done) const;

  const int spins_;  // none where threads have to share cores
  Job job_ = nullptr;
  const void* context_ = nullptr;
  std::unique_ptr<Part[]> parts_;
  std::atomic<bool> stop_ = false;  // published like a job
  alignas(64) std::atomic<uint32_t> generation_ = 0;
  std::atomic<int> sleepers_ = 0;
  alignas(64) std::atomic<uint32_t> pending_ = 0;  // parts that are not done
  std::atomic<bool> caller_sleeps_ = false;
  alignas(64) std::atomic<int64_t> next_item_ = 0;
  std::vector<std::thread> workers_;  // last: started when the rest is there
};

}  // namespace coprime
