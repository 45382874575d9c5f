#include "engine/front.h"

#include <poll.h>

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "model/gates.h"
#include "transport/secret_key.h"
#include "transport/wait_policy.h"

namespace coprime {
namespace {

constexpr int kStopTimeoutMs = 2000;
constexpr int kPollMs = 100;
// After the first sign of trouble, how long the front listens for a better one: a dead process explains its peers'
// errors.
constexpr int kPostMortemMs = 300;

std::span<const std::byte> as_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }
}  // namespace

Front::Front(const WorldOptions& options)
    : options_(options),
      plan_(read_model_shape(options.model), options.plan),
      pages_per_sequence_(static_cast<int>((options.context + kPageTokens - 1) / kPageTokens)),
      progress_(ProgressPage::create(options.plan.ranks)) {
  check_checkpoint(Checkpoint::open(options.model), plan_);  // one clear error, before anything is started
  if (options_.threads == 0) options_.threads = std::max(1, usable_cores() / plan_.ranks());
  if (options_.link == Link::kShm && plan_.ranks() > 1) {
    window_ = ShmRegion::create(plan_.ranks(), largest_slot_bytes(make_decode_schedule(plan_, options_.max_rows)));
  }
  launcher_ = std::make_unique<Launcher>(plan_.ranks(), window_ ? window_->fd() : -1, progress_.fd(), options_.launch);
  start();
}

Front::~Front() {
  try {
    for (int rank = 0; launcher_ && rank < launcher_->ranks(); ++rank) {
      launcher_->channel(rank).send(static_cast<uint32_t>(MessageType::kStop), {});
    }
    if (launcher_) launcher_->wait_all(kStopTimeoutMs);
  } catch (const Error&) {
    // A rank that is gone cannot be told to stop; the launcher ends the others.
  }
}

int Front::gates_per_step() const { return static_cast<int>(make_decode_schedule(plan_, 1).size()); }

void Front::start() {
  RankStart start{.model = options_.model.string(),
                  .plan = options_.plan,
                  .link = options_.link,
                  .kv_type = options_.kv_type,
                  .threads = options_.threads,
                  .max_rows = options_.max_rows,
                  .pages = pages_per_sequence_ * options_.sequences,
                  .slots = options_.sequences,
                  .sequences = options_.sequences,
                  .gate_timeout_ms = options_.gate_timeout_ms,
                  .port = options_.port,
                  .hash_gates = options_.hash_gates};
  if (options_.link == Link::kTcp) start.world_key = to_hex(make_secret_key());
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    start.rank = rank;
    start.isa = options_.isa[std::min(static_cast<size_t>(rank), options_.isa.size() - 1)];
    launcher_->channel(rank).send(static_cast<uint32_t>(MessageType::kStart), as_bytes(to_json(start)));
  }
  if (options_.link == Link::kTcp && plan_.ranks() > 1) exchange_ports();
  for (const Message& message : collect(MessageType::kReady, "while loading"))
    ready_.push_back(rank_ready_from_json(message_text(message)));
  check_agreement();
}

void Front::exchange_ports() {
  std::vector<int> ports;
  for (const Message& message : collect(MessageType::kListening, "while starting to listen")) {
    ports.push_back(ports_from_json(message_text(message)).at(0));
  }
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    launcher_->channel(rank).send(static_cast<uint32_t>(MessageType::kPeers), as_bytes(ports_to_json(ports)));
  }
}

void Front::check_agreement() const {
  for (size_t rank = 1; rank < ready_.size(); ++rank) {
    if (ready_[rank].agreement != ready_[0].agreement) {
      fail(ErrorKind::kModel,
           "ranks 0 and {} do not hold the same model, plan and settings: give all of them the same files", rank);
    }
    if (options_.plan.exact && ready_[rank].order != ready_[0].order) {
      fail(ErrorKind::kUsage, "--exact: rank 0 adds in the order \"{}\", rank {} in \"{}\": limit both to one --isa",
           ready_[0].order, rank, ready_[rank].order);
    }
  }
}

uint64_t Front::total_progress() const {
  uint64_t total = 0;
  for (int rank = 0; rank < plan_.ranks(); ++rank) total += progress_.counter(rank).load(std::memory_order_relaxed);
  return total;
}

std::vector<Message> Front::collect(MessageType type, const std::string& doing) {
  const auto ranks = static_cast<size_t>(plan_.ranks());
  std::vector<Message> messages(ranks);
  std::vector<bool> have(ranks, false);
  size_t missing = ranks;
  uint64_t seen_progress = total_progress();
  int64_t moved_us = now_us();
  // The ranks' own deadlines pass first, and say more.
  const int64_t deadline_us = (int64_t{options_.gate_timeout_ms} + 1000) * 1000;

  while (missing > 0) {
    std::array<pollfd, kMaxRanks> fds{};
    for (size_t r = 0; r < ranks; ++r)
      fds[r] = {have[r] ? -1 : launcher_->channel(static_cast<int>(r)).fd(), POLLIN, 0};
    ::poll(fds.data(), ranks, kPollMs);
    for (size_t r = 0; r < ranks; ++r) {
      if (have[r] || fds[r].revents == 0) continue;
      const Channel::Received received = launcher_->channel(static_cast<int>(r)).receive(messages[r], 0);
      if (received == Channel::Received::kTimeout) continue;
      if (received == Channel::Received::kClosed) fail_world(doing, std::nullopt);
      if (messages[r].type == static_cast<uint32_t>(MessageType::kFailure))
        fail_world(doing, rank_failure_from_json(message_text(messages[r])));
      if (messages[r].type != static_cast<uint32_t>(type))
        fail(ErrorKind::kInternal, "rank {} sent a message of type {}", r, messages[r].type);
      have[r] = true;
      --missing;
    }
    const uint64_t progress = total_progress();
    if (progress != seen_progress) {
      seen_progress = progress;
      moved_us = now_us();
    } else if (missing > 0 && now_us() - moved_us > deadline_us) {
      const size_t rank = static_cast<size_t>(std::ranges::find(have, false) - have.begin());
      const bool stopped = launcher_->is_stopped(static_cast<int>(rank));
      fail(ErrorKind::kLink, "rank {} (process {}) made no progress for {} ms {}{}", rank,
           launcher_->process(static_cast<int>(rank)), deadline_us / 1000, doing,
           stopped ? ": its process is stopped; continue it (kill -CONT) and start again" : ": start again");
    }
  }
  return messages;
}

void Front::fail_world(const std::string& doing, const std::optional<RankFailure>& reported) {
  const int64_t end_us = now_us() + int64_t{kPostMortemMs} * 1000;
  do {
    for (int rank = 0; rank < plan_.ranks(); ++rank) {
      const auto ending = launcher_->ending(rank);
      // A rank that reported ends by itself with status 0; any other end explains the rest.
      if (ending && *ending != "exited with status 0") {
        fail(ErrorKind::kLink, "rank {} (process {}) {} {}: the other ranks were ended; start again", rank,
             launcher_->process(rank), *ending, doing);
      }
    }
    if (reported && reported->kind != ErrorKind::kLink) break;  // no peer's fault
    ::usleep(5000);
  } while (now_us() < end_us);

  if (!reported) fail(ErrorKind::kLink, "a rank closed its control channel {}: start again", doing);
  std::string text = reported->text;
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    if (launcher_->is_stopped(rank))
      text +=
          fmt::format(" (rank {}'s process {} is stopped: kill -CONT continues it)", rank, launcher_->process(rank));
  }
  throw Error(reported->kind, text);
}

const std::vector<RowLogits>& Front::step(StepBatch& batch) {
  const int64_t begin_us = now_us();
  batch.step = next_step_++;
  const std::vector<std::byte> bytes = encode(batch);
  const std::string doing = fmt::format("in step {}", batch.step);
  for (int rank = 0; rank < plan_.ranks(); ++rank) {
    try {
      launcher_->channel(rank).send(static_cast<uint32_t>(MessageType::kStep), bytes);
    } catch (const Error&) {
      fail_world(doing, std::nullopt);
    }
  }
  std::vector<StepResult> results;
  for (const Message& message : collect(MessageType::kResult, doing))
    results.push_back(decode_step_result(message.bytes));
  merge(results, batch);
  ++statistics_.steps;
  statistics_.step_us += now_us() - begin_us;
  return rows_;
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
             gate_text(make_decode_schedule(plan_, options_.max_rows).at(gate)));
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
