#include "engine/rank.h"

#include <fstream>

#include "base/clock.h"
#include "collective/communicator.h"
#include "engine/front_line.h"
#include "engine/gate_reports.h"
#include "engine/messages.h"
#include "engine/rank_links.h"
#include "engine/step_recorder.h"
#include "model/decoder.h"
#include "model/gates.h"
#include "transport/host_identity.h"
#include "transport/progress_mirror.h"

namespace coprime {
namespace {

// Between two steps of a busy front a rank stays awake so long; then it sleeps, and an idle rank costs nothing.
constexpr int64_t kAwakeUs = 200;
// A front that has a result sends the next step sooner than this, or is idle.
constexpr int64_t kNextStepUs = 5'000'000;
// After a failed step it speaks when it has heard of all ranks, and these have their own deadlines.
constexpr int64_t kAfterFailureUs = 600'000'000;

// "RssAnon: 123 kB" of this process, in bytes; 0 where the system does not tell.
int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

// Counts the rank's progress while it loads, which the front's patience watches; and looks whether the front is still
// there, since a shard may take minutes.
class CountingSink final : public WeightSink {
 public:
  CountingSink(std::unique_ptr<WeightSink> next, FrontLine& front, const ProgressPage& page, int rank)
      : next_(std::move(next)), front_(front), page_(page), rank_(rank) {}
  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    page_.advance(rank_);
    front_.look();
    next_->rows(first, count, bytes);
  }

 private:
  std::unique_ptr<WeightSink> next_;
  FrontLine& front_;
  const ProgressPage& page_;
  int rank_;
};

std::string order_text(const Device& device) {
  return fmt::format("linear {}, attention {}", static_cast<int>(device.linear_order()),
                     static_cast<int>(device.attention_order()));
}

// What the front chose and the gates depend on.
std::string settings_text(const RankStart& start) {
  return fmt::format("math {}, kv {}, rows {}, pages {}, slots {}, sequences {}, hash-gates {}, wire-auth {}",
                     math_name(start.math), dtype_name(start.kv_type), start.max_rows, start.pages, start.slots,
                     start.sequences, start.hash_gates, start.links.wire_auth);
}

class Rank {
 public:
  Rank(FrontLine& front, std::shared_ptr<const ProgressPage> progress, const RankPlacement& placement)
      : front_(front), progress_(std::move(progress)), placement_(placement) {}

  void run(const Message& start) {
    start_ = from_json<RankStart>(message_text(start));
    rank_ = start_.links.rank;
    start_.plan.ranks = start_.links.ranks;
    if (!placement_.model.empty()) start_.model = placement_.model.string();
    plan_.emplace(read_model_shape(start_.model), start_.plan);
    schedule_ = make_decode_schedule(*plan_, start_.max_rows);
    const Checkpoint checkpoint = Checkpoint::open(start_.model);
    links_.emplace(start_.links, placement_);
    front_.send_json(MessageType::kFacts,
                     RankFacts{.facts = collect_facts(checkpoint, *plan_, schedule_, settings_text(start_),
                                                      [&] {
                                                        progress_->advance(rank_);
                                                        front_.look();
                                                      }),
                               .host = host_identity(),
                               .port = links_->port(),
                               .no_verbs = links_->no_verbs(),
                               .no_ucx = links_->no_ucx(),
                               .cores = links_->host().usable()});
    const auto group = from_json<RankGroup>(message_text(front_.expect(MessageType::kGroup)));
    std::unique_ptr<Exchange> exchange = make_links(group);
    load(checkpoint, std::move(exchange), links_->threads(group), links_->cores(group));
    serve();
  }

 private:
  // New links, and all state of the last ones dropped.
  std::unique_ptr<Exchange> make_links(const RankGroup& group) {
    epoch_ = group.epoch;
    communicator_.reset();
    std::unique_ptr<Exchange> exchange = links_->make(front_, group, schedule_, progress_);
    links_->tell(front_, *exchange);
    return exchange;
  }

  void communicate(std::unique_ptr<Exchange> exchange) {
    communicator_.emplace(std::move(exchange), *device_);
    communicator_->hash_gates(start_.hash_gates);
    recorder_.reset();
    if (start_.gate_profile) communicator_->observe(profile_.emplace());
    if (start_.gate_trace) {
      communicator_->observe(trace_.emplace([this](const std::string& line) { front_.report(line); }));
    }
  }

  void load(const Checkpoint& checkpoint, std::unique_ptr<Exchange> exchange, int threads, const CorePlan& plan) {
    keep_to_node(plan);
    device_ = make_cpu_device({.isa = start_.isa,
                               .math = start_.math,
                               .exact = start_.plan.exact,
                               .threads = threads,
                               .cores = plan.cores,
                               .progress = &progress_->counter(rank_)});
    communicate(std::move(exchange));
    ModelWeights weights = load_weights(
        checkpoint, *plan_, rank_, *device_, [&](const LocalTensor& tensor, std::unique_ptr<WeightSink> sink) {
          if (placement_.hooks.filter) sink = placement_.hooks.filter(tensor, std::move(sink));
          return std::make_unique<CountingSink>(std::move(sink), front_, *progress_, rank_);
        });
    // The communicator is made anew in its place when links are.
    decoder_.emplace(*plan_, rank_, *device_, *communicator_, std::move(weights),
                     DecoderOptions{.max_rows = start_.max_rows,
                                    .pages = start_.pages,
                                    .slots = start_.slots,
                                    .sequences = start_.sequences,
                                    .kv_type = start_.kv_type});
    const CacheShape& cache = decoder_->cache().shape();
    front_.send_json(MessageType::kReady, RankReady{.order = order_text(*device_),
                                                    .device = device_->description(),
                                                    .cores = core_plan_text(plan),
                                                    .threads = threads,
                                                    .step_bytes = decoder_->weights().step_bytes,
                                                    .weight_bytes = decoder_->weights().bytes,
                                                    .cache_bytes = cache.kv_bytes() + cache.state_bytes(),
                                                    .resident_bytes = anonymous_bytes(),
                                                    .tally = decoder_->weights().tally.text(),
                                                    .unused = decoder_->weights().tally.unused});
  }

  [[noreturn]] void serve() {
    Message message;
    while (true) {
      front_.receive_into(message, kAwakeUs);
      if (message.type == static_cast<uint32_t>(MessageType::kGroup)) {
        communicate(make_links(from_json<RankGroup>(message_text(message))));
        decoder_->forget_sequences();
      } else if (message.type == static_cast<uint32_t>(MessageType::kStep)) {
        if (const std::optional<RankFailure> failure = step(message.bytes)) {
          if (placement_.report) placement_.report("a step failed: " + failure->text);
          front_.send_json(MessageType::kStepFailed, *failure);
          front_.expect_answer(silence_us(start_.links.gate_timeout_ms), kAfterFailureUs);
        } else {
          front_.expect_answer(silence_us(start_.links.gate_timeout_ms), kNextStepUs);
        }
      } else {
        fail(ErrorKind::kInternal, "expected a step, found a message of type {}", message.type);
      }
    }
  }

  std::optional<RankFailure> step(std::span<const std::byte> bytes) {
    try {
      const int64_t begin_us = now_us(), gate_begin_ns = communicator_->statistics().time_ns;
      const StepBatch batch = decode_step_batch(bytes);
      if (batch.trace && !recorder_) communicator_->observe(recorder_.emplace(communicator_->gates()));
      result_.recorded.events.clear();
      if (batch.trace) recorder_->begin_step();
      decoder_->step(batch, result_);
      if (batch.trace) recorder_->end_step(batch.step, result_.recorded);
      result_.step = batch.step;
      result_.gate_hashes.assign(communicator_->gate_hashes().begin(), communicator_->gate_hashes().end());
      result_.compute_us = now_us() - begin_us;
      result_.gate_us = (communicator_->statistics().time_ns - gate_begin_ns) / 1000;
      encode(result_, encoded_);
    } catch (const std::exception& error) {
      // The peers need not wait for a rank that stops. If the world blames somebody already, that stands.
      progress_->settle(epoch_, rank_, rank_);
      return failure_of(error);
    }
    if (profile_) {
      for (const std::string& line : profile_->take_lines()) front_.report(line);
    }
    front_.send(MessageType::kResult, encoded_);
    return std::nullopt;
  }

  FrontLine& front_;
  const std::shared_ptr<const ProgressPage> progress_;
  const RankPlacement& placement_;
  RankStart start_;
  int rank_ = 0;
  std::optional<ShardPlan> plan_;
  GateSchedule schedule_;
  std::optional<RankLinks> links_;
  uint32_t epoch_ = 0;
  // Those that watch the gates, as settings and steps ask. They outlive the communicator that they watch.
  std::optional<GateProfile> profile_;
  std::optional<GateTrace> trace_;
  std::optional<StepRecorder> recorder_;  // from the first step that is to be traced
  std::optional<HostCommunicator> communicator_;
  std::unique_ptr<Device> device_;
  std::optional<Decoder> decoder_;
  StepResult result_;
  std::vector<std::byte> encoded_;
};

void serve(FrontLine& front, std::shared_ptr<const ProgressPage> progress, const RankPlacement& placement) {
  const Message first = front.receive();
  if (first.type == static_cast<uint32_t>(MessageType::kMeasure) && placement.measure)
    return placement.measure(front, first, std::move(progress), placement);
  if (first.type != static_cast<uint32_t>(MessageType::kStart))
    fail(ErrorKind::kLink, "expected a front's first message, found type {}: run the same coprime on all hosts",
         first.type);
  Rank(front, std::move(progress), placement).run(first);
}

}  // namespace

RankEnding run_rank(Channel& control, std::shared_ptr<const ProgressPage> progress, const RankPlacement& placement) {
  FrontLine front(control, *progress);
  RankFailure failure;
  try {
    serve(front, std::move(progress), placement);
  } catch (const FrontEnded& ended) {
    return ended.ending;
  } catch (const std::exception& error) {
    failure = failure_of(error);
  }
  try {
    front.send_json(MessageType::kFailure, failure);
  } catch (const Error&) {
    return {RankEnding::Why::kFrontGone, ErrorKind::kLink, "the front is gone"};
  }
  return {RankEnding::Why::kFailed, failure.kind, failure.text};
}

}  // namespace coprime
