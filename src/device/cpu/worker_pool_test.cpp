#include "device/cpu/worker_pool.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <numeric>

namespace coprime {
namespace {

TEST(WorkerPool, every_thread_runs_every_region_once) {
  for (int threads : {1, 2, 3, 8}) {
    WorkerPool pool(threads, {});
    std::vector<int> runs(static_cast<size_t>(threads));  // plain ints: the pool orders their accesses
    for (int region = 0; region < 500; ++region) {
      pool.run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
      ASSERT_EQ(std::accumulate(runs.begin(), runs.end(), 0), threads * (region + 1));
    }
  }
}

// The caller does the parts of threads that do not come: here they cannot, since they share its core with it.
TEST(WorkerPool, a_region_does_not_wait_for_threads_whose_core_is_taken) {
  std::thread([] {  // a thread of its own: the pool pins its maker
    WorkerPool pool(4, {0, 0, 0, 0});
    std::vector<int> runs(4);
    std::atomic<int> by_caller = 0;
    const auto caller = std::this_thread::get_id();
    for (int region = 0; region < 2000; ++region) {
      pool.run([&](int part) {
        ++runs[static_cast<size_t>(part)];
        if (std::this_thread::get_id() == caller) ++by_caller;
      });
    }
    EXPECT_EQ(runs, std::vector<int>(4, 2000));
    EXPECT_GT(by_caller, 2 * 2000);
  })
      .join();
}

// Parts that last longer than anyone spins, on either side.
TEST(WorkerPool, a_sleeping_caller_is_woken_by_the_last_worker) {
  WorkerPool pool(3, {});
  std::atomic<int> slow = 0;
  for (int region = 0; region < 20; ++region) {
    pool.run([&](int part) {
      if (part == 0) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
        while (std::chrono::steady_clock::now() < end) {  // so that the others begin
        }
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        ++slow;
      }
    });
    ASSERT_EQ(slow, 2 * (region + 1));
  }
}

TEST(WorkerPool, items_are_handed_out_once) {
  WorkerPool pool(3, {});
  for (int64_t count : {0, 1, 2, 100}) {
    std::vector<int> seen(static_cast<size_t>(count));
    pool.for_each(count, [&](int64_t item, int) { ++seen[static_cast<size_t>(item)]; });
    EXPECT_EQ(seen, std::vector<int>(static_cast<size_t>(count), 1));
  }
}

TEST(WorkerPool, sleeping_workers_wake_for_the_next_region) {
  WorkerPool pool(3, {});
  std::vector<int> runs(3);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
  }
  EXPECT_EQ(runs, std::vector<int>(3, 5));
}

TEST(WorkerPool, an_idle_pool_uses_no_cpu) {
  WorkerPool pool(3, {});
  pool.run([](int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until they sleep
  const auto cpu_ms = [] {
    timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
  };
  const double before = cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_ms() - before, 15.0);
}

TEST(WorkerPool, ends_at_once_whether_its_workers_spin_or_sleep) {
  for (int i = 0; i < 50; ++i) WorkerPool(4, {});
  WorkerPool slept(4, {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

TEST(WorkerPool, a_core_that_does_not_exist_is_left_to_the_scheduler) {
  std::thread([] {  // a thread of its own: the pool pins its maker
    WorkerPool pool(2, {0, 100000});
    std::vector<int> runs(2);
    pool.run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
    EXPECT_EQ(runs, std::vector<int>(2, 1));
  })
      .join();
}

}  // namespace
}  // namespace coprime
