// The machine that runs kernels: processors, network, and the loop over events. One machine may hold one SIP or
// several; what never speaks with each other may run on machines of its own, with the same result.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/processor.h"

namespace coprime::sim {

// Of a run that has ended.
struct MachineTotals {
  Moment end;  // of the PE that ended last
  uint32_t last_pe = 0;
  std::array<uint64_t, kEventKinds> events = {};
  Totals pes;      // all PEs together
  Totals busiest;  // the largest of any PE, field by field
  Tick time = 0;   // the ends of all PEs, added up
  Tick busiest_link = 0;
  std::array<LevelTotals, 3> levels = {};  // PEs, CUBEs, SIPs
  PacketTotals packets;
  int64_t arena_high_water = 0, tcm_high_water = 0;
};

// What one launch did, with times from its start on. Not how much of it was accounted for at once: a PE that has run
// before may see sooner that a loop repeats itself.
struct LayerRecord {
  struct PeRecord {
    uint32_t pe = 0;
    Tick ticks = 0;
    std::array<Tick, kParts> by = {};
    Totals totals;
    int64_t arena_high_water = 0;
    bool operator==(const PeRecord&) const = default;
  };
  std::vector<PeRecord> pes;
  std::array<LevelTotals, 3> levels = {};
  Tick start = 0;
  uint32_t first_op = 0;  // operations before it
};
// Where two launches are not the same, in words; empty: nowhere.
std::string difference(const LayerRecord& one, const LayerRecord& other);

class Machine {
 public:
  // sips: of the chip, from `first_sip` on. log: null for none. forward: iterations of loops that repeat themselves are
  // accounted for at once, where there is neither a log nor data; every tick and count stays the same.
  Machine(const Chip& chip, int first_sip, int sips, OpLog* log, bool forward);
  ~Machine();

  // Each CPU waits for the end of each of its operations: what the same kernel takes without any overlap.
  void set_serial(bool serial) { context_.serial = serial; }

  uint32_t index_of(Place place) const;

  // Starts a kernel there at tick 0, or where next_layer() says. make: called at once with the PE's Tl. hbm: null for
  // timing alone; outlives the run.
  using MakeKernel = std::function<tl::Task(tl::Tl<Processor>&)>;
  // sends_to: all peers that it sends to, if they are known: then paths that nobody shares take no events.
  void launch(Place place, const std::string& kernel, tl::Hbm* hbm, const MakeKernel& make,
              const std::optional<std::vector<tl::Peer>>& sends_to = std::nullopt);

  // To the end of all kernels. Throws what a kernel threw, and Error(kUsage) with the wait-for graph if some can never
  // end. Checks the invariants: no resource is used for more than the time that there was, what was sent was received,
  // the parts of the critical path add up, the time is no less than each resource's work.
  // progress: called now and then, with the present tick and the events so far; what it throws ends the run.
  using Progress = std::function<void(Tick now, uint64_t events)>;
  MachineTotals run(const Progress& progress = {});

  // After run(): what each PE and each level did, since the last such call if there was one; the next kernels may then
  // be launched, which all start when the last of these has ended. What they find is what these have left.
  LayerRecord next_layer();

  const Processor& processor(Place place) const { return *processors_[index_of(place)]; }

 private:
  bool dispatch(const Event& event);
  [[noreturn]] void report_deadlock() const;
  MachineTotals totals() const;

  Context context_;
  const int first_sip_;
  const attention::Mesh pes_, cubes_;
  Network network_;
  std::vector<std::unique_ptr<Processor>> processors_;
  std::vector<std::unique_ptr<tl::Tl<Processor>>> tls_;
  std::array<uint64_t, kEventKinds> events_ = {};
  int undeclared_ = 0;  // kernels whose peers are not known
  bool begun_ = false;
  Moment start_;        // of this launch
  LayerRecord before_;  // counts at its start
};

}  // namespace coprime::sim
