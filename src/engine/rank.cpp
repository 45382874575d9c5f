#include "engine/rank.h"

#include <fstream>
#include <sstream>

#include "base/clock.h"
#include "base/hash.h"
#include "collective/communicator.h"
#include "engine/gate_reports.h"
#include "engine/messages.h"
#include "engine/step_recorder.h"
#include "gate/exchange.h"
#include "model/decoder.h"
#include "model/gates.h"
#include "transport/mesh.h"
#include "transport/wait_policy.h"

namespace coprime {
namespace {

// Between two steps of a busy front a rank stays awake so long; then it sleeps, and an idle rank costs nothing.
constexpr int64_t kAwakeUs = 200;
constexpr int kConnectTimeoutMs = 10'000;

void send_text(Channel& control, MessageType type, const std::string& text) {
  control.send(static_cast<uint32_t>(type), std::as_bytes(std::span(text)));
}

Message expect(Channel& control, MessageType type) {
  Message message;
  if (control.receive(message, -1) != Channel::Received::kMessage || message.type != static_cast<uint32_t>(type)) {
    fail(ErrorKind::kInternal, "expected a control message of type {}, found {}", static_cast<uint32_t>(type),
         message.type);
  }
  return message;
}

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

std::unique_ptr<Exchange> join_world(Channel& control, const RankStart& start, UniqueFd window,
                                     std::shared_ptr<const ProgressPage> progress, GateSchedule schedule) {
  const ExchangeSettings settings{choose_wait_policy(usable_cores(), start.plan.ranks, start.threads),
                                  start.gate_timeout_ms};
  WorldLinks links{.rank = start.rank, .ranks = start.plan.ranks};
  if (start.plan.ranks > 1 && start.link == Link::kShm) {
    links.region = std::make_shared<const ShmRegion>(ShmRegion::attach(std::move(window)));
    for (int rank = 0; rank < start.plan.ranks; ++rank) links.region_ranks.push_back(rank);
  } else if (start.plan.ranks > 1) {
    const auto port = static_cast<uint16_t>(start.port == 0 ? 0 : start.port + start.rank);
    const Listener listener = Listener::open({"127.0.0.1", port}, false, "choose another --port");
    send_text(control, MessageType::kListening, ports_to_json({listener.port()}));
    const std::vector<int> table = ports_from_json(message_text(expect(control, MessageType::kPeers)));
    std::vector<Endpoint> endpoints;
    for (const int peer_port : table) endpoints.push_back({"127.0.0.1", static_cast<uint16_t>(peer_port)});
    const Membership me{
        .rank = start.rank, .ranks = start.plan.ranks, .key = secret_key_from_hex(start.world_key, "the world's key")};
    for (MeshConnection& connection :
         connect_mesh(listener, endpoints, (1u << start.plan.ranks) - 1, me, kConnectTimeoutMs)) {
      links.peers.push_back({.socket = std::move(connection.socket)});
    }
  }
  return std::make_unique<Exchange>(std::move(links), std::move(schedule), std::move(progress), settings);
}

// Of everything that must be the same on every rank before the first gate: plan, settings, and the files' headers.
uint64_t agreement_hash(const Checkpoint& checkpoint, const ShardPlan& plan, const RankStart& start) {
  std::string text = fmt::format("{:x} {} {} {} {} {}", plan.hash(), static_cast<int>(start.kv_type), start.max_rows,
                                 start.pages, start.slots, start.hash_gates);
  for (const Checkpoint::Located& located : checkpoint.tensors()) {
    text += fmt::format("\n{} {} {} {}", located.tensor->name, located.tensor->type_name, located.tensor->offset,
                        located.tensor->bytes);
  }
  return hash_bytes(std::as_bytes(std::span(text)));
}

std::string order_text(const Device& device) {
  return fmt::format("linear {}, attention {}", static_cast<int>(device.linear_order()),
                     static_cast<int>(device.attention_order()));
}

// Those that watch a rank's gates, as its settings and the steps ask. They outlive the communicator that they watch.
struct Observers {
  std::optional<GateProfile> profile;
  std::optional<GateTrace> trace;
  std::optional<StepRecorder> recorder;  // from the first step that is to be traced
};

void observe_gates(Observers& observers, Communicator& communicator, Channel& control, const RankStart& start) {
  if (start.gate_profile) communicator.observe(observers.profile.emplace());
  if (start.gate_trace) {
    communicator.observe(observers.trace.emplace(
        [&control](const std::string& line) { send_text(control, MessageType::kReport, line); }));
  }
}

void serve_steps(Channel& control, Decoder& decoder, Communicator& communicator, Observers& observers) {
  Message message;
  StepResult result;
  std::vector<std::byte> bytes;
  while (control.receive(message, -1, kAwakeUs) == Channel::Received::kMessage &&
         message.type == static_cast<uint32_t>(MessageType::kStep)) {
    const int64_t begin_us = now_us(), gate_begin_ns = communicator.statistics().time_ns;
    const StepBatch batch = decode_step_batch(message.bytes);
    if (batch.trace && !observers.recorder) {
      communicator.observe(observers.recorder.emplace(communicator.gates()));
    }
    result.recorded.events.clear();
    if (batch.trace) observers.recorder->begin_step();
    decoder.step(batch, result);
    if (batch.trace) observers.recorder->end_step(batch.step, result.recorded);
    result.step = batch.step;
    result.gate_hashes.assign(communicator.gate_hashes().begin(), communicator.gate_hashes().end());
    result.compute_us = now_us() - begin_us;
    result.gate_us = (communicator.statistics().time_ns - gate_begin_ns) / 1000;
    if (observers.profile) {
      for (const std::string& line : observers.profile->take_lines()) send_text(control, MessageType::kReport, line);
    }
    encode(result, bytes);
    control.send(static_cast<uint32_t>(MessageType::kResult), bytes);
  }
}

void load_and_serve(Channel& control, UniqueFd window, UniqueFd progress_fd, const RankHooks& hooks) {
  const RankStart start = rank_start_from_json(message_text(expect(control, MessageType::kStart)));
  const auto progress = std::make_shared<const ProgressPage>(ProgressPage::attach(std::move(progress_fd)));
  const ShardPlan plan(read_model_shape(start.model), start.plan);
  Observers observers;
  Communicator communicator(
      join_world(control, start, std::move(window), progress, make_decode_schedule(plan, start.max_rows)));
  communicator.hash_gates(start.hash_gates);
  observe_gates(observers, communicator, control, start);

  const auto device =
      make_cpu_device({.isa = start.isa, .threads = start.threads, .progress = &progress->counter(start.rank)});
  const Checkpoint checkpoint = Checkpoint::open(start.model);
  ModelWeights weights = load_weights(checkpoint, plan, start.rank, *device,
                                      [&](const LocalTensor& tensor, std::unique_ptr<WeightSink> sink) {
                                        if (hooks.filter) sink = hooks.filter(tensor, std::move(sink));
                                        return std::make_unique<CountingSink>(std::move(sink), *progress, start.rank);
                                      });
  Decoder decoder(plan, start.rank, *device, communicator, std::move(weights),
                  {.max_rows = start.max_rows,
                   .pages = start.pages,
                   .slots = start.slots,
                   .sequences = start.sequences,
                   .kv_type = start.kv_type});

  const CacheShape& cache = decoder.cache().shape();
  send_text(control, MessageType::kReady,
            to_json(RankReady{.agreement = agreement_hash(checkpoint, plan, start),
                              .order = order_text(*device),
                              .device = device->description(),
                              .weight_bytes = decoder.weights().bytes,
                              .cache_bytes = cache.kv_bytes() + cache.state_bytes(),
                              .resident_bytes = anonymous_bytes(),
                              .tally = decoder.weights().tally.text(),
                              .unused = decoder.weights().tally.unused}));
  serve_steps(control, decoder, communicator, observers);
}

}  // namespace

void run_rank(Channel& control, UniqueFd window, UniqueFd progress, const RankHooks& hooks) {
  RankFailure failure;
  try {
    load_and_serve(control, std::move(window), std::move(progress), hooks);
    return;
  } catch (const Error& error) {
    failure = {error.kind(), error.what()};
  } catch (const std::exception& error) {
    failure = {ErrorKind::kInternal, error.what()};
  }
  try {
    send_text(control, MessageType::kFailure, to_json(failure));
  } catch (const Error&) {
    // The front is gone: nobody is left to tell.
  }
}

}  // namespace coprime
