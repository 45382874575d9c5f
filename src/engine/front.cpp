#include "engine/front.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/decoder.h"
#include "model/gates.h"
#include "trace/clock_id.h"
#include "transport/memory_limit.h"
#include "transport/progress_mirror.h"

namespace coprime {
namespace {

// Beyond the ranks' own deadlines, which pass first and say more.
constexpr int kFrontsPatienceMs = 1000;
// Once a rank has failed, the others know within some milliseconds: so long may one of them neither move nor report.
constexpr int kAfterFailureMs = 500;

int pages_of(const WorldOptions& options) {  // a sequence
  return static_cast<int>((options.context + kPageTokens - 1) / kPageTokens);
}

}  // namespace

void check_cache_memory(const ShardPlan& plan, const WorldOptions& options, int64_t available_bytes) {
  const DecoderOptions decoder{.pages = pages_of(options) * options.sequences,
                               .slots = options.sequences,
                               .sequences = options.sequences,
                               .kv_type = options.kv_type};
  int64_t bytes = 0;
  for (int rank = 0; rank < plan.ranks() - options.remote.ranks; ++rank) {
    const CacheShape cache = cache_shape(plan, rank, decoder);
    bytes += cache.kv_bytes() + cache.state_bytes();
  }
  if (bytes < available_bytes) return;
  fail(ErrorKind::kUsage,
       "{} sequence{} of {} tokens need {} MiB of keys, values and states on this host, {} MiB are available: ask for "
       "fewer or shorter ones, or for --kv f16 or fp8",
       options.sequences, options.sequences == 1 ? "" : "s", options.context, bytes >> 20, available_bytes >> 20);
}

Front::Front(const WorldOptions& options)
    : options_(options),
      plan_(read_model_shape(options.model), options.plan),
      schedule_(make_decode_schedule(plan_, options.max_rows)),
      pages_per_sequence_(pages_of(options)) {
  const Checkpoint checkpoint = Checkpoint::open(options.model);
  check_checkpoint(checkpoint, plan_);  // one clear error, before anything is started
  largest_slot_bytes(schedule_);        // likewise
  check_cache_memory(plan_, options_, available_memory_bytes());
  if (options_.remote.ranks > 0) facts_ = collect_facts(checkpoint, plan_, schedule_, {}, [] {});
  world_ = std::make_unique<World>(plan_.ranks(), options_.launch, options_.remote, options_.report);
  try {
    start();
  } catch (const Error& error) {
    end_world(error);
  }
}

Front::~Front() {
  if (world_) world_->stop({});
}

int Front::patience_ms() const { return options_.gate_timeout_ms + kFrontsPatienceMs; }

void Front::start() {
  RankStart start{.model = options_.model.string(),
                  .plan = options_.plan,
                  .math = options_.math,
                  .kv_type = options_.kv_type,
                  .max_rows = options_.max_rows,
                  .pages = pages_per_sequence_ * options_.sequences,
                  .slots = options_.sequences,
                  .sequences = options_.sequences,
                  .hash_gates = options_.hash_gates,
                  .gate_profile = options_.gate_profile,
                  .gate_trace = options_.gate_trace};
  const std::vector<LinkStart> links = link_starts(*world_, options_.remote,
                                                   {.threads = options_.threads,
                                                    .gate_timeout_ms = options_.gate_timeout_ms,
                                                    .port = options_.port,
                                                    .wire_auth = options_.wire_auth,
                                                    .verbs = options_.verbs,
                                                    .ucx = options_.link == Link::kUcx});
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    start.links = links[static_cast<size_t>(rank)];
    start.isa = options_.isa[std::min(static_cast<size_t>(rank), options_.isa.size() - 1)];
    world_->send_json(rank, MessageType::kStart, start);
  }
  const World::Patience patience = World::until_it_ends(options_.gate_timeout_ms);
  for (const Message& message : world_->collect(MessageType::kFacts, "while reading the model's headers", patience))
    rank_facts_.push_back(from_json<RankFacts>(message_text(message)));
  check_agreement();
  links_ = make_links(*world_, rank_facts_, {options_.link, epoch_, patience});
  for (const Message& message : world_->collect(MessageType::kReady, "while loading", patience))
    ready_.push_back(from_json<RankReady>(message_text(message)));
  for (size_t rank = 1; rank < ready_.size() && options_.plan.exact; ++rank) {
    if (ready_[rank].order != ready_[0].order) {
      fail(ErrorKind::kUsage, "--exact: rank 0 adds in the order \"{}\", rank {} in \"{}\": limit both to one --isa",
           ready_[0].order, rank, ready_[rank].order);
    }
  }
}

void Front::check_agreement() const {
  for (size_t rank = 1; rank < rank_facts_.size(); ++rank)
    compare_facts("rank 0", rank_facts_[0].facts, fmt::format("rank {}", rank), rank_facts_[rank].facts);
  if (facts_.empty()) return;  // its ranks read the front's own files
  Facts fronts = facts_;
  fronts.back().value = rank_facts_[0].facts.back().value;  // the settings are the front's own
  compare_facts("the front", fronts, "rank 0", rank_facts_[0].facts);
}

void Front::end_world(const Error& error) {
  const Error copy = error;
  if (world_) world_->stop(copy.what());
  world_.reset();
  ended_by_.emplace(copy);
  throw copy;
}

void Front::fail_step(const std::vector<RankReport>& reports, const std::string& doing) {
  const Error error = *world_->explain(reports, doing, epoch_);
  const bool all_there = std::ranges::all_of(reports, [](const RankReport& report) {
    return report.kind == RankReport::Kind::kMessage || report.kind == RankReport::Kind::kFailed;
  });
  if (!all_there) end_world(error);
  try {
    links_ =
        make_links(*world_, rank_facts_, {options_.link, ++epoch_, World::until_it_ends(options_.gate_timeout_ms)});
  } catch (const Error& rebuilding) {
    end_world(Error(error.kind(),
                    fmt::format("{}; and the links could not be rebuilt: {}", error.what(), rebuilding.what())));
  }
  ++statistics_.rebuilds;
  throw error;
}

const std::vector<RowLogits>& Front::step(StepBatch& batch) {
  if (!world_) throw *ended_by_;
  const int64_t begin_ns = now_ns();
  batch.step = next_step_++;
  batch.cancelled = std::exchange(cancelled_, {});
  const std::vector<std::byte> bytes = encode(batch);
  const std::string doing = fmt::format("in step {}", batch.step);
  for (int rank = 0; rank < plan_.ranks(); ++rank) world_->send(rank, MessageType::kStep, bytes);
  const std::vector<RankReport> reports = world_->listen(
      MessageType::kResult, {.quiet_ms = patience_ms(),
                             .after_failure_ms = kAfterFailureMs,
                             .for_movers = true,
                             .silent_ms = static_cast<int>(silence_us(options_.gate_timeout_ms) / 1000)});
  const auto is_result = [](const RankReport& report) { return report.kind == RankReport::Kind::kMessage; };
  if (!std::ranges::all_of(reports, is_result)) fail_step(reports, doing);
  std::vector<StepResult> results;
  for (const RankReport& report : reports) results.push_back(decode_step_result(report.message.bytes));
  merge(results, batch);
  if (batch.trace) keep_trace(results, begin_ns);
  ++statistics_.steps;
  statistics_.step_us += (now_ns() - begin_ns) / 1000;
  return rows_;
}

void Front::keep_trace(std::vector<StepResult>& results, int64_t begin_ns) {
  trace_ = {.step = results[0].step, .clock = clock_id(), .begin_ns = begin_ns, .end_ns = now_ns()};
  for (StepResult& result : results) trace_.ranks.push_back(std::move(result.recorded));
}

void Front::merge(const std::vector<StepResult>& results, const StepBatch& batch) {
  size_t requests = 0;
  for (const SequenceRows& rows : batch.sequences) requests += rows.logits.size();
  int64_t compute_us = 0, gate_us = 0;
  for (size_t rank = 0; rank < results.size(); ++rank) {
    const StepResult& result = results[rank];
    if (result.step != batch.step || result.rows.size() != requests) {
      fail(ErrorKind::kInternal, "rank {} returned step {} with {} rows, expected step {} with {}", rank, result.step,
           result.rows.size(), batch.step, requests);
    }
    for (size_t gate = 0; gate < result.gate_hashes.size(); ++gate) {
      if (result.gate_hashes[gate] != results[0].gate_hashes.at(gate)) {
        fail(ErrorKind::kInternal, "ranks 0 and {} hold different bits after step {}, {}", rank, batch.step,
             gate_text(schedule_.at(gate)));
      }
    }
    compute_us += result.compute_us;
    gate_us += result.gate_us;
  }
  statistics_.compute_us += compute_us / plan_.ranks();
  statistics_.gate_us += gate_us / plan_.ranks();

  rows_.resize(requests);
  for (size_t i = 0; i < requests; ++i) {
    rows_[i].best.clear();
    rows_[i].all.clear();
    for (const StepResult& result : results) {
      rows_[i].best.insert(rows_[i].best.end(), result.rows[i].best.begin(), result.rows[i].best.end());
      rows_[i].all.insert(rows_[i].all.end(), result.rows[i].all.begin(), result.rows[i].all.end());
    }
  }
}

}  // namespace coprime
