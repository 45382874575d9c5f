// Machine 2: the kernels of tl/kernels on this host, with bounded queues between them. The same commands compute the
// same bits as on the simulated chip; no time is modelled.
//
//   run_free()       a thread a PE
//   run_scheduled()  one step of one PE at a time, in an order that a seed gives: every run can be repeated
//
// Both find a deadlock when it happens and throw Error(kUsage) with the graph of who waits for whom (and the seed).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "host_mesh/worker.h"

namespace coprime::host_mesh {

struct QueueSizes {
  int64_t slots = 4, slot_bytes = 4096;
  int64_t arena_bytes = 1 << 20;
};

class HostMesh {
 public:
  HostMesh(const tl::Places& places, const QueueSizes& sizes);
  ~HostMesh();

  // make: called at once with the PE's Tl. hbm: null for no data; outlives the run.
  using MakeKernel = std::function<tl::Task(tl::Tl<Worker>&)>;
  void launch(tl::Place place, const std::string& kernel, tl::Hbm* hbm, const MakeKernel& make);

  // To the end of all kernels, once. Throw what a kernel threw first.
  void run_free();
  void run_scheduled(uint64_t seed);

  const Worker& worker(tl::Place place) const { return *workers_[static_cast<size_t>(places_.index_of(place))]; }

  // Of its workers.
  const tl::Places& places() const { return places_; }
  Worker& worker(uint32_t index) { return *workers_[index]; }
  SlotQueue& queue(uint32_t from, uint32_t to);
  void rung(uint32_t index);
  void fell_asleep();
  void woke_up() { ++awake_; }
  void ended(std::exception_ptr error);
  bool stopped() const { return stopped_.load(); }
  bool scheduled() const { return scheduled_; }

 private:
  bool all_asleep();
  void report_deadlock(const std::string& how);
  void stop(std::exception_ptr error);
  void finish();

  const tl::Places places_;
  const QueueSizes sizes_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<tl::Tl<Worker>>> tls_;
  bool with_data_ = false, scheduled_ = false;

  std::mutex mutex_;                                                                  // of what follows
  std::vector<std::vector<std::pair<uint32_t, std::unique_ptr<SlotQueue>>>> queues_;  // by sender
  std::exception_ptr error_;

  std::atomic<int> awake_ = 0;
  std::atomic<uint64_t> rings_ = 0;
  std::atomic<bool> stopped_ = false;
  std::vector<uint32_t> ready_;  // of the scheduler: PEs that may be able to go on
  std::vector<bool> is_ready_;
};

}  // namespace coprime::host_mesh
