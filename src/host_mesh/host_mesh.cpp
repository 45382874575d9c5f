#include "host_mesh/host_mesh.h"

#include <thread>

#include "base/check.h"
#include "base/error.h"

namespace coprime::host_mesh {

HostMesh::HostMesh(const tl::Places& places, const QueueSizes& sizes) : places_(places), sizes_(sizes) {
  if (sizes.slots < 1 || sizes.slot_bytes < 1)
    fail(ErrorKind::kUsage, "queues of {} slots of {} bytes: both must be at least 1", sizes.slots, sizes.slot_bytes);
  const auto count = static_cast<uint32_t>(places.count());
  for (uint32_t index = 0; index < count; ++index)
    workers_.push_back(std::make_unique<Worker>(*this, index, places.place_of(static_cast<int>(index))));
  tls_.resize(count);
  queues_.resize(count);
}

HostMesh::~HostMesh() {
  for (const auto& worker : workers_) worker->drop_kernel();
}

void HostMesh::launch(tl::Place place, const std::string& kernel, tl::Hbm* hbm, const MakeKernel& make) {
  const auto index = static_cast<size_t>(places_.index_of(place));
  COPRIME_CHECK(!workers_[index]->launched(), "{}", index);
  with_data_ = hbm != nullptr;
  tls_[index] =
      std::make_unique<tl::Tl<Worker>>(*workers_[index], kernel + " on " + name_of(place), sizes_.arena_bytes, hbm);
  workers_[index]->launch(make(*tls_[index]), *tls_[index]);
}

SlotQueue& HostMesh::queue(uint32_t from, uint32_t to) {
  const std::lock_guard lock(mutex_);
  for (const auto& [number, queue] : queues_[from]) {
    if (number == to) return *queue;
  }
  return *queues_[from]
              .emplace_back(to, std::make_unique<SlotQueue>(sizes_.slots, sizes_.slot_bytes, with_data_))
              .second;
}

// The bell first, then the count of rings: all_asleep() relies on it.
void HostMesh::rung(uint32_t index) {
  if (scheduled_) {
    if (!is_ready_[index] && workers_[index]->launched() && !workers_[index]->ended())
      is_ready_[index] = true, ready_.push_back(index);
    return;
  }
  workers_[index]->ring();
  ++rings_;
}

void HostMesh::stop(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }
  stopped_ = true;
  for (const auto& worker : workers_) worker->ring();
}

void HostMesh::run_free() {
  for (const auto& worker : workers_) awake_ += worker->launched() ? 1 : 0;
  std::vector<std::thread> threads;
  for (const auto& worker : workers_) {
    if (worker->launched()) threads.emplace_back([one = worker.get()] { one->run(); });
  }
  for (std::thread& thread : threads) thread.join();
  finish();
}

void HostMesh::ended(std::exception_ptr error) {
  if (error) stop(std::move(error));
  fell_asleep();
}

// Whoever falls asleep last, or ends last while others sleep, finds the deadlock: all have counted themselves out by
// then, and it alone runs.
void HostMesh::fell_asleep() {
  if (--awake_ > 0 || stopped() || !all_asleep()) return;
  report_deadlock("");
}

// True only if every PE sleeps, or has ended, at one and the same time. Each is looked at in turn; one that was seen
// asleep may have been woken since, but only by a ring of one that was awake, which rings the bell, then counts the
// ring, and only then can be seen asleep itself. So if the count has not changed, nobody woke.
bool HostMesh::all_asleep() {
  const uint64_t rings = rings_.load();
  bool any = false;
  for (const auto& worker : workers_) {
    if (!worker->launched() || worker->ended()) continue;
    if (!worker->asleep()) return false;
    any = true;
  }
  return any && rings_.load() == rings;
}

void HostMesh::report_deadlock(const std::string& how) {
  std::vector<tl::Waiting> waiting;
  for (const auto& worker : workers_) {
    if (worker->launched() && !worker->ended()) waiting.push_back(worker->waiting());
  }
  const auto name = [this](uint32_t index) { return name_of(places_.place_of(static_cast<int>(index))); };
  try {
    fail(ErrorKind::kUsage, "{} PEs wait for what will never come{}{}", waiting.size(), how,
         tl::describe(waiting, name));
  } catch (...) {
    stop(std::current_exception());
  }
}

void HostMesh::run_scheduled(uint64_t seed) {
  scheduled_ = true;
  is_ready_.assign(workers_.size(), false);
  for (const auto& worker : workers_) rung(worker->index());
  uint64_t state = seed;
  const auto next = [&state] {  // SplitMix64
    uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  };
  while (!ready_.empty()) {
    const size_t at = next() % ready_.size();
    Worker& worker = *workers_[ready_[at]];
    // Off the list while it runs: whoever rings it meanwhile puts it back.
    ready_[at] = ready_.back();
    ready_.pop_back();
    is_ready_[worker.index()] = false;
    const Worker::Step step = worker.step();
    if (step == Worker::Step::kMoved) rung(worker.index());
    if (step == Worker::Step::kEnded) worker.check();
  }
  for (const auto& worker : workers_) {
    if (!worker->launched() || worker->ended()) continue;
    report_deadlock(fmt::format(" (seed {})", seed));
    break;
  }
  finish();
}

void HostMesh::finish() {
  if (error_) std::rethrow_exception(error_);
  for (const auto& worker : workers_) worker->check_nothing_left();
}

}  // namespace coprime::host_mesh
