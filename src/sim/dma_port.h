// The DMA engine's port to HBM: jobs cut into requests, a limited number of them in flight.
#pragma once

#include <vector>

#include "sim/context.h"

namespace coprime::sim {

// A job that has been given to the port.
struct DmaRun {
  Tick start;
  Cause cause;
  uint32_t cause_op;
  Tick busy;
  Moment end;
};

class DmaPort {
 public:
  explicit DmaPort(const Chip& chip)
      : dma_(chip.pe.dma),
        request_ticks_(transfer_ticks(dma_.request_bytes, dma_.hbm_gb_s)),
        ends_(static_cast<size_t>(dma_.reads_in_flight), 0) {}

  // When the next request may start.
  Tick available() const { return std::max(free_.time, ends_[next_]); }

  // Runs the job `op`, which is ready then for that cause. Jobs come in the order of the port.
  DmaRun run(uint32_t op, const Moment& ready, Cause cause, int64_t bytes) {
    DmaRun run{std::max(available(), ready.time), cause, ready.op, 0, {}};
    if (ready.time <= free_.time) run.cause = Cause::kEngine, run.cause_op = free_.op;
    free_.wait(ready);
    if (run.start > free_.time) run.cause = Cause::kBuffer;
    for (; bytes > 0; bytes -= dma_.request_bytes) {
      const Tick ticks = bytes >= dma_.request_bytes ? request_ticks_ : transfer_ticks(bytes, dma_.hbm_gb_s);
      if (ends_[next_] > free_.time) free_.add(Part::kHbmLatency, ends_[next_] - free_.time);
      free_.add(Part::kHbm, ticks);
      run.busy += ticks;
      ends_[next_] = free_.time + static_cast<Tick>(dma_.latency_ps);
      if (++next_ == ends_.size()) next_ = 0;
    }
    free_.op = op;
    run.end = free_;
    run.end.add(Part::kHbmLatency, static_cast<Tick>(dma_.latency_ps));
    return run;
  }

  // Its state, for LoopHistory: see(Moment&) and see(Tick&). Ends before the port is free bind nothing: settle() makes
  // them equal.
  void settle() {
    for (Tick& end : ends_) end = std::max(end, free_.time);
  }
  template <class See>
  void visit(See& see) {
    see(free_);
    for (size_t i = 0; i < ends_.size(); ++i) see(ends_[(next_ + i) % ends_.size()]);
  }

 private:
  const DmaUnit dma_;
  const Tick request_ticks_;
  std::vector<Tick> ends_;  // of the last requests, in a ring; next_ is the oldest
  size_t next_ = 0;
  Moment free_;  // when the last request's bytes are through
};

}  // namespace coprime::sim
