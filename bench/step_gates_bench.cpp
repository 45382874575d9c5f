// What the gates of a decode step cost in the decoder itself, beside as many bare exchanges of the same run: two ranks
// over shared memory, each pinned to a core of its own, no front.
//
// A step's gate time is, for each gate, publishing and folding (the mean of the two ranks) and the smaller wait of the
// two, which is free of the other's lateness. After every step the same processes run tools/bare_exchange.h as often.
// The line gives medians over the steps, and the ratio of the gate time to 1.3 floors and 0.3 us a gate.
#include <sys/mman.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>

#include "base/percentile.h"
#include "checkpoint/safetensors.h"
#include "collective/gate_observer.h"
#include "device/cpu/cpu_device.h"
#include "gate/testing.h"
#include "model/decoder.h"
#include "pinned.h"
#include "tools/bare_exchange.h"

namespace coprime {
namespace {

constexpr int kRanks = 2, kMaxSteps = 2048, kMaxGates = 256;

struct Options {
  std::string model = "models/mini-qwen35";
  int steps = 400;
  int64_t hidden = 0;
};

struct PhaseTimes {  // nanoseconds
  int32_t publish = 0, wait = 0, fold = 0;
};
struct Rounds {  // of one rank
  PhaseTimes gates[kMaxSteps][kMaxGates];
  int64_t bare_ns[kMaxSteps];  // of one exchange
};

class PhaseRecorder final : public GateObserver {
 public:
  void phase_ended(const GateEntry&, const GateMoment& moment) override {
    PhaseTimes& gate = into_[moment.entry];
    const auto time = static_cast<int32_t>(moment.end_ns - moment.begin_ns);
    (moment.phase == GatePhase::kPublish ? gate.publish
     : moment.phase == GatePhase::kWait  ? gate.wait
                                         : gate.fold) += time;
  }
  void record_into(PhaseTimes* gates) { into_ = gates; }

 private:
  PhaseTimes* into_ = nullptr;
};

// A checkpoint of four small layers of the hidden size, all zeros: the time of a gate does not depend on its values.
class Slice {
 public:
  explicit Slice(int64_t hidden) : path_(std::filesystem::temp_directory_path() / "coprime-slice-XXXXXX") {
    std::string pattern = path_.string();
    if (::mkdtemp(pattern.data()) == nullptr) fail(ErrorKind::kInternal, "no temporary folder for the slice");
    path_ = pattern;
    constexpr int kLayers = 4, kHeads = 4, kKvHeads = 2, kHeadDim = 64, kWidth = 256, kVocab = 256;
    std::ofstream(path_ / "config.json") << fmt::format(
        R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":{},"intermediate_size":{},)"
        R"("num_hidden_layers":{},"num_attention_heads":{},"num_key_value_heads":{},"head_dim":{},"vocab_size":{},)"
        R"("max_position_embeddings":8192,"rms_norm_eps":1e-5,"rope_theta":10000.0,"tie_word_embeddings":true,)"
        R"("hidden_act":"silu"}})",
        hidden, kWidth, kLayers, kHeads, kKvHeads, kHeadDim, kVocab);
    const std::vector<std::byte> zeros(static_cast<size_t>(2 * hidden * 256));
    std::vector<TensorToWrite> tensors;
    const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
      int64_t count = 1;
      for (const int64_t extent : shape) count *= extent;
      tensors.push_back({name, DType::kBF16, std::move(shape), std::span(zeros).first(static_cast<size_t>(2 * count))});
    };
    add("model.embed_tokens.weight", {kVocab, hidden});
    add("model.norm.weight", {hidden});
    for (int layer = 0; layer < kLayers; ++layer) {
      const std::string prefix = fmt::format("model.layers.{}.", layer);
      add(prefix + "input_layernorm.weight", {hidden});
      add(prefix + "post_attention_layernorm.weight", {hidden});
      add(prefix + "self_attn.q_proj.weight", {kHeads * kHeadDim, hidden});
      add(prefix + "self_attn.k_proj.weight", {kKvHeads * kHeadDim, hidden});
      add(prefix + "self_attn.v_proj.weight", {kKvHeads * kHeadDim, hidden});
      add(prefix + "self_attn.o_proj.weight", {hidden, kHeads * kHeadDim});
      add(prefix + "mlp.gate_proj.weight", {kWidth, hidden});
      add(prefix + "mlp.up_proj.weight", {kWidth, hidden});
      add(prefix + "mlp.down_proj.weight", {hidden, kWidth});
    }
    write_safetensors(path_ / "model.safetensors", tensors);
  }
  Slice(const Slice&) = delete;
  ~Slice() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void run_rank(const Options& options, const testing::TestWorld& world, int rank, BareExchange& bare, Rounds& rounds,
              const ExchangeSettings& settings) {
  const ShardPlan plan(read_model_shape(options.model), {.ranks = kRanks});
  const auto device = make_cpu_device({.progress = &world.progress().counter(rank)});
  ModelWeights weights = load_weights(Checkpoint::open(options.model), plan, rank, *device);
  PhaseRecorder recorder;
  HostCommunicator communicator(world.join(rank, settings), *device);
  communicator.observe(recorder);
  const int pages = options.steps / kPageTokens + 1;
  Decoder decoder(plan, rank, *device, communicator, std::move(weights), {.max_rows = 1, .pages = pages, .slots = 1});

  StepBatch batch{.sequences = {{.kind = RowsKind::kDecode, .rows = 1, .state_out = 0, .logits = {{0, 1}}}},
                  .ids = {7}};
  for (int page = 0; page < pages; ++page) batch.sequences[0].pages.pages.push_back(page);
  StepResult result;
  const auto count = static_cast<size_t>(world.schedule()[0].row_bytes) / sizeof(float);
  const std::vector<float> in(count, 1.0f);
  std::vector<float> sum(count);
  const auto gates = static_cast<int64_t>(communicator.gates());
  std::memset(static_cast<void*>(&rounds), 0, sizeof rounds);  // no page of it is new to this process later
  for (int step = 0; step < options.steps; ++step) {
    recorder.record_into(rounds.gates[step]);
    batch.sequences[0].start = step;
    batch.sequences[0].state_in = step == 0 ? -1 : 0;
    decoder.step(batch, result);
    bare.run(in.data(), sum.data(), count);  // lines the ranks up
    const int64_t begin_ns = now_ns();
    for (int64_t gate = 0; gate < gates; ++gate) bare.run(in.data(), sum.data(), count);
    rounds.bare_ns[step] = (now_ns() - begin_ns) / gates;
  }
}

void run_bench(Options options) {
  std::optional<Slice> slice;
  if (options.hidden > 0) options.model = slice.emplace(options.hidden).path();
  const ShardPlan plan(read_model_shape(options.model), {.ranks = kRanks});
  const GateSchedule schedule = make_decode_schedule(plan, 1);
  if (schedule.size() > kMaxGates) fail(ErrorKind::kUsage, "{} gates, at most {}", schedule.size(), kMaxGates);
  const testing::TestWorld world(testing::Link::kShm, kRanks, schedule);
  const auto region = std::make_shared<const ShmRegion>(ShmRegion::create(kRanks, largest_slot_bytes(schedule)));
  auto* rounds = static_cast<Rounds*>(::mmap(nullptr, sizeof(Rounds) * kRanks, PROT_READ | PROT_WRITE,
                                             MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  if (rounds == MAP_FAILED) fail(ErrorKind::kInternal, "no memory for the results");
  const std::vector<int> statuses = testing::run_processes(kRanks, [&](int rank) {
    const ExchangeSettings settings = world.settings();  // before this rank has one core only
    const bool own_core = usable_cores() >= kRanks;
    pin_rank(rank, kRanks);
    BareExchange bare(bare_window(region, rank), largest_slot_bytes(schedule), own_core);
    run_rank(options, world, rank, bare, rounds[rank], settings);
    return 0;
  });
  if (std::ranges::count(statuses, 0) != kRanks) fail(ErrorKind::kLink, "a rank failed");

  const auto gates = static_cast<double>(schedule.size());
  std::vector<double> gate_us, bare_us, publish_us, wait_us, fold_us;
  for (int step = options.steps / 10; step < options.steps; ++step) {
    double publish = 0, wait = 0, fold = 0;
    for (size_t gate = 0; gate < schedule.size(); ++gate) {
      const PhaseTimes &a = rounds[0].gates[step][gate], &b = rounds[1].gates[step][gate];
      publish += (a.publish + b.publish) / 2e3;
      wait += std::min(a.wait, b.wait) / 1e3;
      fold += (a.fold + b.fold) / 2e3;
    }
    publish_us.push_back(publish / gates);
    wait_us.push_back(wait / gates);
    fold_us.push_back(fold / gates);
    gate_us.push_back((publish + wait + fold) / gates);
    bare_us.push_back(static_cast<double>(std::max(rounds[0].bare_ns[step], rounds[1].bare_ns[step])) / 1e3);
  }
  for (const auto& [name, share] : {std::pair{"median", 0.5}, {"fastest tenth", 0.1}}) {
    const double gate = percentile(gate_us, share), bare = percentile(bare_us, share), limit = 1.3 * bare + 0.3;
    std::printf(
        "step_gates ranks=%d cores=%d bytes=%lld gates=%zu of=\"%s\" gate_us=%.3f (publish %.3f, wait %.3f, fold %.3f) "
        "bare_us=%.3f limit_us=%.3f gate/limit=%.2f\n",
        kRanks, usable_cores(), static_cast<long long>(schedule[0].row_bytes), schedule.size(), name, gate,
        percentile(publish_us, share), percentile(wait_us, share), percentile(fold_us, share), bare, limit,
        gate / limit);
  }
}

}  // namespace
}  // namespace coprime

int main(int argc, char** argv) {
  coprime::Options options;
  CLI::App app{"a decode step's gates beside bare exchanges"};
  app.add_option("--model", options.model)->capture_default_str();
  app.add_option("--hidden", options.hidden, "a synthetic slice of this hidden size instead of a model")
      ->check(CLI::Range(64, 16384));
  app.add_option("--steps", options.steps)->check(CLI::Range(20, coprime::kMaxSteps))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    coprime::run_bench(options);
    return 0;
  } catch (const coprime::Error& error) {
    std::fprintf(stderr, "step_gates_bench: %s\n", error.what());
    return coprime::exit_code(error.kind());
  }
}
