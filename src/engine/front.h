// The front's end of a world: it gives the ranks steps, merges what they return, and decides what a failure means.
// Holds no weights.
//
// A step that fails is that step's error and not the world's end: once all ranks have reported, their links are rebuilt
// by agreement and the next step may come, of new sequences (those of before are forgotten). Where a rank is dead or
// does not answer, the world ends: the error is thrown, every rank is ended, and later steps throw the same.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "engine/linking.h"
#include "engine/messages.h"
#include "engine/step_trace.h"
#include "engine/world.h"
#include "geometry/shard_plan.h"
#include "model/step_batch.h"

namespace coprime {

struct WorldOptions {
  std::filesystem::path model;
  PlanOptions plan;
  Link link = Link::kAuto;
  MathMode math = MathMode::kSplit;
  DType kv_type = DType::kF32;
  int threads = 0;                  // a rank; 0: the cores of its host shared out
  std::vector<Isa> isa{Isa::kAmx};  // the limit, of each rank or of all
  int max_rows = 256;
  int64_t context = 0;  // tokens of one sequence that memory is set aside for
  int sequences = 1;
  int gate_timeout_ms = 750;
  int port = 0;
  VerbsChoice verbs;
  bool hash_gates = false;
  bool wire_auth = false;
  bool gate_profile = false, gate_trace = false;  // what the ranks report meanwhile
  LaunchOptions launch;
  RemoteOptions remote;
  Report report;
};

// The caches of this host's ranks are committed as they fill. Error(kUsage) when they cannot all fit.
void check_cache_memory(const ShardPlan& plan, const WorldOptions& options, int64_t available_bytes);

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
  uint64_t rebuilds = 0;   // of the links, after steps that failed
};

class Front {
 public:
  // Checks the model and the plan, starts and receives the ranks, and returns when all have loaded and agree.
  explicit Front(const WorldOptions& options);
  ~Front();

  const ShardPlan& plan() const { return plan_; }
  const WorldOptions& options() const { return options_; }
  const std::vector<RankReady>& ranks() const { return ready_; }
  const GateSchedule& schedule() const { return schedule_; }  // of a step
  pid_t process(int rank) const { return world_ ? world_->process(rank) : 0; }
  const WorldStatistics& statistics() const { return statistics_; }
  const LinkNames& links() const { return links_.names; }
  const std::vector<std::string>& link_notes() const { return links_.notes; }

  // Pages a sequence has at most, and the pages of sequence `s`: [s * pages, (s + 1) * pages).
  int pages_per_sequence() const { return pages_per_sequence_; }

  // Fills in the step's number. One RowLogits for each request, in order; valid until the next step. Error when it
  // failed: usable() tells whether another may follow.
  const std::vector<RowLogits>& step(StepBatch& batch);
  // Gives up a sequence: all ranks forget it when the next step begins.
  void cancel(int sequence) { cancelled_.push_back(sequence); }
  bool usable() const { return world_ != nullptr; }

  // Of the last step whose batch asked for a trace; its name is the caller's to give.
  const StepTrace& trace() const { return trace_; }

 private:
  void start();
  void check_agreement() const;
  int patience_ms() const;  // with ranks that stand still in a step
  [[noreturn]] void fail_step(const std::vector<RankReport>& reports, const std::string& doing);
  [[noreturn]] void end_world(const Error& error);
  void keep_trace(std::vector<StepResult>& results, int64_t begin_ns);
  void merge(const std::vector<StepResult>& results, const StepBatch& batch);

  WorldOptions options_;
  ShardPlan plan_;
  GateSchedule schedule_;
  int pages_per_sequence_ = 0;
  std::unique_ptr<World> world_;  // null: it has ended
  std::optional<Error> ended_by_;
  uint32_t epoch_ = 1;
  Facts facts_;  // the front's own
  std::vector<RankFacts> rank_facts_;
  MadeLinks links_;
  std::vector<RankReady> ready_;
  uint64_t next_step_ = 1;
  std::vector<int32_t> cancelled_;  // since the last step
  std::vector<RowLogits> rows_;
  StepTrace trace_;
  WorldStatistics statistics_;
};

}  // namespace coprime
