// The front's end of a world: it starts the ranks, gives them steps, merges what they return, and finds out which rank
// is slow or dead. Holds no weights.
//
// An error ends the world: every rank is ended before it is thrown, and step() must not be called again.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/launcher.h"
#include "engine/messages.h"
#include "engine/step_trace.h"
#include "geometry/shard_plan.h"
#include "model/step_batch.h"
#include "transport/progress_page.h"
#include "transport/shm/shm_region.h"

namespace coprime {

struct WorldOptions {
  std::filesystem::path model;
  PlanOptions plan;
  Link link = Link::kShm;
  DType kv_type = DType::kF32;
  int threads = 0;                     // a rank; 0: the cores shared out
  std::vector<Isa> isa{Isa::kAvx512};  // the limit, of each rank or of all
  int max_rows = 256;
  int64_t context = 0;  // tokens of one sequence that memory is set aside for
  int sequences = 1;
  int gate_timeout_ms = 5000;
  int port = 0;
  bool hash_gates = false;
  bool gate_profile = false, gate_trace = false;
  std::function<void(int rank, std::string_view line)> on_report;  // what ranks have to say meanwhile; may be empty
  LaunchOptions launch;
};

// A requested row over the whole vocabulary: the candidates of all shards, or all logits.
struct RowLogits {
  std::vector<Candidate> best;
  std::vector<float> all;
};

struct WorldStatistics {
  uint64_t steps = 0;
  int64_t step_us = 0;     // front's time from sending steps to having merged their results
  int64_t compute_us = 0;  // mean over the ranks, gates included
  int64_t gate_us = 0;     // mean over the ranks
};

class Front {
 public:
  // Checks the model and the plan, starts the ranks, and returns when all have loaded and agree.
  explicit Front(const WorldOptions& options);
  ~Front();

  const ShardPlan& plan() const { return plan_; }
  const WorldOptions& options() const { return options_; }
  const std::vector<RankReady>& ranks() const { return ready_; }
  GateSchedule schedule() const;
  int gates_per_step() const { return static_cast<int>(schedule().size()); }
  pid_t process(int rank) const { return launcher_->process(rank); }
  const WorldStatistics& statistics() const { return statistics_; }

  // Pages a sequence has at most, and the pages of sequence `s`: [s * pages, (s + 1) * pages).
  int pages_per_sequence() const { return pages_per_sequence_; }

  // Fills in the step's number. One RowLogits for each request, in order; valid until the next step.
  const std::vector<RowLogits>& step(StepBatch& batch);

  // Of the last step whose batch asked for a trace; its name is the caller's to give.
  const StepTrace& trace() const { return trace_; }

 private:
  void start();
  void exchange_ports();
  void check_agreement() const;
  // One message of this type from every rank. Error when a rank fails, ends, or nobody moves for too long.
  std::vector<Message> collect(MessageType type, const std::string& doing);
  [[noreturn]] void fail_world(const std::string& doing, const std::optional<RankFailure>& reported);
  uint64_t total_progress() const;
  void keep_trace(std::vector<StepResult>& results, int64_t begin_ns);
  void merge(const std::vector<StepResult>& results, const StepBatch& batch);

  WorldOptions options_;
  ShardPlan plan_;
  int pages_per_sequence_ = 0;
  std::optional<ShmRegion> window_;
  ProgressPage progress_;
  std::unique_ptr<Launcher> launcher_;
  std::vector<RankReady> ready_;
  uint64_t next_step_ = 1;
  std::vector<RowLogits> rows_;
  StepTrace trace_;
  WorldStatistics statistics_;
};

}  // namespace coprime
