#include "engine/rank.h"

#include <fstream>
#include <new>

#include "base/clock.h"
#include "collective/communicator.h"
#include "engine/gate_reports.h"
#include "engine/messages.h"
#include "engine/rank_links.h"
#include "engine/step_recorder.h"
#include "model/decoder.h"
#include "model/gates.h"
#include "transport/host_identity.h"

namespace coprime {
namespace {

// Between two steps of a busy front a rank stays awake so long; then it sleeps, and an idle rank costs nothing.
constexpr int64_t kAwakeUs = 200;

// The front's word, or its silence, that ends a rank. Thrown and caught in this file only.
struct FrontEnded {
  RankEnding ending;
};

// "RssAnon: 123 kB" of this process, in bytes; 0 where the system does not tell.
int64_t anonymous_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  return 0;
}

// Counts the rank's progress while it loads: a peer's patience, and the front's, watch it.
class CountingSink final : public WeightSink {
 public:
  CountingSink(std::unique_ptr<WeightSink> next, const ProgressPage& page, int rank)
      : next_(std::move(next)), page_(page), rank_(rank) {}
  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    page_.advance(rank_);
    next_->rows(first, count, bytes);
  }

 private:
  std::unique_ptr<WeightSink> next_;
  const ProgressPage& page_;
  int rank_;
};

std::string order_text(const Device& device) {
  return fmt::format("linear {}, attention {}", static_cast<int>(device.linear_order()),
                     static_cast<int>(device.attention_order()));
}

// What the front chose and the gates depend on.
std::string settings_text(const RankStart& start) {
  return fmt::format("kv {}, rows {}, pages {}, slots {}, sequences {}, hash-gates {}, wire-auth {}",
                     dtype_name(start.kv_type), start.max_rows, start.pages, start.slots, start.sequences,
                     start.hash_gates, start.wire_auth);
}

RankFailure failure_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return {ours->kind(), ours->what()};
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr)
    return {ErrorKind::kInternal, "not enough memory: use a shorter context or more ranks on other machines"};
  return {ErrorKind::kInternal, error.what()};
}

class Rank {
 public:
  Rank(Channel& control, std::shared_ptr<const ProgressPage> progress, const RankPlacement& placement)
      : control_(control), progress_(std::move(progress)), placement_(placement) {}

  void run() {
    start_ = from_json<RankStart>(message_text(expect(MessageType::kStart)));
    if (!placement_.model.empty()) start_.model = placement_.model.string();
    plan_.emplace(read_model_shape(start_.model), start_.plan);
    schedule_ = make_decode_schedule(*plan_, start_.max_rows);
    const Checkpoint checkpoint = Checkpoint::open(start_.model);
    links_.emplace(start_, placement_);
    send_to_front(control_, MessageType::kFacts,
                  RankFacts{.facts = collect_facts(checkpoint, *plan_, schedule_, settings_text(start_),
                                                   [&] { progress_->advance(start_.rank); }),
                            .host = host_identity(),
                            .port = links_->port(),
                            .no_verbs = links_->no_verbs(),
                            .no_ucx = links_->no_ucx()});
    const auto group = from_json<RankGroup>(message_text(expect(MessageType::kGroup)));
    make_links(group);
    load(checkpoint, links_->threads(group));
    serve();
  }

 private:
  // The next message, of this type. The front may end any conversation.
  Message expect(MessageType type) {
    Message message = receive(0);
    if (message.type != static_cast<uint32_t>(type)) {
      fail(ErrorKind::kInternal, "expected a control message of type {}, found {}", static_cast<uint32_t>(type),
           message.type);
    }
    return message;
  }

  Message receive(int64_t awake_us) {
    Message message;
    receive_into(message, awake_us);
    return message;
  }

  void receive_into(Message& message, int64_t awake_us) {
    if (control_.receive(message, -1, awake_us) != Channel::Received::kMessage)
      throw FrontEnded{{RankEnding::Why::kFrontGone, ErrorKind::kLink, "the front is gone"}};
    if (message.type != static_cast<uint32_t>(MessageType::kStop)) return;
    const std::string reason(message_text(message));
    throw FrontEnded{{reason.empty() ? RankEnding::Why::kDone : RankEnding::Why::kDismissed, ErrorKind::kLink, reason}};
  }

  // New links, and all state of the last ones dropped.
  void make_links(const RankGroup& group) {
    epoch_ = group.epoch;
    communicator_.reset();
    communicator_.emplace(links_->make(
        control_, group, [&](MessageType type) { return expect(type); }, schedule_, progress_));
    communicator_->hash_gates(start_.hash_gates);
    recorder_.reset();
    if (start_.gate_profile) communicator_->observe(profile_.emplace());
    if (start_.gate_trace) {
      communicator_->observe(trace_.emplace([this](const std::string& line) { report(line); }));
    }
  }

  void report(const std::string& line) {
    control_.send(static_cast<uint32_t>(MessageType::kReport), std::as_bytes(std::span(line)));
  }

  void load(const Checkpoint& checkpoint, int threads) {
    device_ = make_cpu_device({.isa = start_.isa, .threads = threads, .progress = &progress_->counter(start_.rank)});
    ModelWeights weights = load_weights(
        checkpoint, *plan_, start_.rank, *device_, [&](const LocalTensor& tensor, std::unique_ptr<WeightSink> sink) {
          if (placement_.hooks.filter) sink = placement_.hooks.filter(tensor, std::move(sink));
          return std::make_unique<CountingSink>(std::move(sink), *progress_, start_.rank);
        });
    // The communicator is made anew in its place when links are.
    decoder_.emplace(*plan_, start_.rank, *device_, *communicator_, std::move(weights),
                     DecoderOptions{.max_rows = start_.max_rows,
                                    .pages = start_.pages,
                                    .slots = start_.slots,
                                    .sequences = start_.sequences,
                                    .kv_type = start_.kv_type});
    const CacheShape& cache = decoder_->cache().shape();
    send_to_front(control_, MessageType::kReady,
                  RankReady{.order = order_text(*device_),
                            .device = device_->description(),
                            .weight_bytes = decoder_->weights().bytes,
                            .cache_bytes = cache.kv_bytes() + cache.state_bytes(),
                            .resident_bytes = anonymous_bytes(),
                            .tally = decoder_->weights().tally.text(),
                            .unused = decoder_->weights().tally.unused});
  }

  [[noreturn]] void serve() {
    Message message;
    while (true) {
      receive_into(message, kAwakeUs);
      if (message.type == static_cast<uint32_t>(MessageType::kGroup)) {
        make_links(from_json<RankGroup>(message_text(message)));
        decoder_->forget_sequences();
      } else if (message.type == static_cast<uint32_t>(MessageType::kStep)) {
        if (const std::optional<RankFailure> failure = step(message.bytes)) {
          if (placement_.report) placement_.report("a step failed: " + failure->text);
          send_to_front(control_, MessageType::kStepFailed, *failure);
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
      progress_->settle(epoch_, start_.rank, start_.rank);
      return failure_of(error);
    }
    if (profile_) {
      for (const std::string& line : profile_->take_lines()) report(line);
    }
    control_.send(static_cast<uint32_t>(MessageType::kResult), encoded_);
    return std::nullopt;
  }

  Channel& control_;
  const std::shared_ptr<const ProgressPage> progress_;
  const RankPlacement& placement_;
  RankStart start_;
  std::optional<ShardPlan> plan_;
  GateSchedule schedule_;
  std::optional<RankLinks> links_;
  uint32_t epoch_ = 0;
  // Those that watch the gates, as settings and steps ask. They outlive the communicator that they watch.
  std::optional<GateProfile> profile_;
  std::optional<GateTrace> trace_;
  std::optional<StepRecorder> recorder_;  // from the first step that is to be traced
  std::optional<Communicator> communicator_;
  std::unique_ptr<Device> device_;
  std::optional<Decoder> decoder_;
  StepResult result_;
  std::vector<std::byte> encoded_;
};

}  // namespace

RankEnding run_rank(Channel& control, std::shared_ptr<const ProgressPage> progress, const RankPlacement& placement) {
  RankFailure failure;
  try {
    Rank(control, std::move(progress), placement).run();
  } catch (const FrontEnded& ended) {
    return ended.ending;
  } catch (const std::exception& error) {
    failure = failure_of(error);
  }
  try {
    send_to_front(control, MessageType::kFailure, failure);
  } catch (const Error&) {
    return {RankEnding::Why::kFrontGone, ErrorKind::kLink, "the front is gone"};
  }
  return {RankEnding::Why::kFailed, failure.kind, failure.text};
}

}  // namespace coprime
