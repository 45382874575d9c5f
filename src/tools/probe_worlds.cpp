// What the engine costs beside reading weights, by running it: small models of zeros through a front and its ranks, and
// gates through ranks that do nothing else.
#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "tools/bench.h"
#include "tools/link.h"
#include "tools/probe.h"

namespace coprime {
namespace {

// A checkpoint in a folder of its own that goes with this object. All weights are zero: times do not depend on them.
class SmallModel {
 public:
  explicit SmallModel(const std::string& config) {
    std::string pattern = (std::filesystem::temp_directory_path() / "coprime-probe-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr)
      fail(ErrorKind::kInternal, "{}: no temporary folder for the probe",
           std::filesystem::temp_directory_path().string());
    path_ = pattern;
    std::ofstream(path_ / "config.json") << config;
    write_weights(ShardPlan(parse_model_shape(config, "the probe's model"), {}));
  }
  SmallModel(const SmallModel&) = delete;
  ~SmallModel() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  void write_weights(const ShardPlan& plan) const {
    std::vector<TensorToWrite> tensors;
    int64_t most = 0;
    const auto elements = [](const Rule& rule) {
      int64_t count = 1;
      for (const int64_t extent : rule.shape) count *= extent;
      return count;
    };
    for (const Rule& rule : plan.rules()) most = std::max(most, elements(rule));
    const std::vector<std::byte> zeros(static_cast<size_t>(2 * most));
    for (int layer = -1; layer < plan.shape().layers; ++layer) {
      for (const Rule& rule : plan.rules()) {
        if (!plan.applies(rule, layer)) continue;
        tensors.push_back({plan.tensor_name(rule, layer), DType::kBF16, rule.shape,
                           std::span(zeros).first(static_cast<size_t>(2 * elements(rule)))});
      }
    }
    write_safetensors(path_ / "model.safetensors", tensors);
  }

  std::filesystem::path path_;
};

// Heads and widths that 2, 3 and 4 ranks divide.
std::string config_of(bool linear, int layers, int hidden) {
  const std::string common = fmt::format(
      R"("hidden_size":{},"intermediate_size":192,"num_hidden_layers":{},"num_attention_heads":12,)"
      R"("num_key_value_heads":12,"head_dim":8,"vocab_size":768,"max_position_embeddings":4096,"tie_word_embeddings":true)",
      hidden, layers);
  if (!linear) return fmt::format(R"({{"architectures":["LlamaForCausalLM"],"model_type":"llama",{}}})", common);
  std::string types;
  for (int layer = 0; layer < layers; ++layer) types += layer == 0 ? "\"linear_attention\"" : ",\"linear_attention\"";
  return fmt::format(
      R"({{"architectures":["Qwen3_5ForCausalLM"],"model_type":"qwen3_5_text",{},"layer_types":[{}],)"
      R"("linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":16,"linear_value_head_dim":16,)"
      R"("linear_conv_kernel_dim":4}})",
      common, types);
}

struct StepFigures {
  double rank_us = 0, front_us = 0, gate_us = 0;  // of a rank's work without gates; beside it; of one gate
};

// Of a step of decode, in the quietest of some short rounds.
StepFigures step_of(const std::string& config, int ranks, int threads, Link link = Link::kAuto) {
  const SmallModel model(config);
  WorldOptions options{
      .model = model.path(), .plan = {.ranks = ranks}, .link = link, .threads = threads, .max_rows = 1, .context = 512};
  Front front(options);
  const BenchOptions bench{.prompt_tokens = 1, .decode_tokens = 40};
  StepFigures best;
  double least_us = 0;
  for (int round = 0; round < 6; ++round) {
    BenchRun run = run_bench_round(front, bench);
    std::ranges::sort(run.step_ms);
    const double step_us = run.step_ms[run.step_ms.size() / 2] * 1e3, ranks_us = run.compute_ms * 1e3;
    if (round > 0 && ranks_us >= least_us) continue;
    least_us = ranks_us;
    best.gate_us = run.gate_share * ranks_us / static_cast<double>(front.schedule().size());
    best.rank_us = (1 - run.gate_share) * ranks_us;
    best.front_us = std::max(step_us - ranks_us, 0.0);
  }
  return best;
}

// The median of a trial's gates, each as long as its slowest rank took. Microseconds.
double gate_of(RankedLinkWorld& world, const LinkTrial& trial) {
  const std::vector<TrialReport> reports = world.run(trial);
  std::vector<int64_t> times = reports[0].times.gate;
  for (const TrialReport& report : reports) {
    if (!report.failure.empty()) fail(ErrorKind::kLink, "a gate of {} bytes: {}", trial.bytes, report.failure);
    for (size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], report.times.gate.at(i));
  }
  return figures_of(std::move(times)).p50;
}

}  // namespace

void probe_layers(const ProbeCores& cores, MachineHost& host) {
  constexpr int kFew = 4, kMany = 24, kHidden = 256;
  for (const int threads : cores.threads) {
    LayerFigure figure{.threads = threads};
    for (const bool linear : {false, true}) {
      const StepFigures few = step_of(config_of(linear, kFew, kHidden), 1, threads),
                        many = step_of(config_of(linear, kMany, kHidden), 1, threads);
      (linear ? figure.linear_us : figure.attention_us) = std::max((many.rank_us - few.rank_us) / (kMany - kFew), 0.01);
      if (!linear && threads == cores.cores) host.front_us = few.front_us;
    }
    host.layers.push_back(figure);
  }
}

// Small gates in the engine, between products that leave the ranks a little apart; large ones by themselves.
void probe_gates(const ProbeCores& cores, Machine& machine) {
  constexpr int64_t kKiB = 1024;
  for (const Link link : {Link::kShm, Link::kTcp}) {
    for (const int ranks : {2, 3, 4}) {
      if (ranks > std::max(cores.cores, 2)) continue;
      MeasuredGates measured{.link = std::string(link_name(link)), .ranks = ranks};
      for (const int hidden : {256, 2048, 6144}) {
        const StepFigures step = step_of(config_of(false, 4, hidden), ranks, 1, link);
        measured.points.push_back({hidden * int64_t{sizeof(float)}, step.gate_us});
      }
      RankedLinkWorld world({.ranks = ranks, .wish = link});
      LinkTrial trial{.kind = LinkTrial::Kind::kGate, .repeat = 20};
      for (int rank = 0; rank < ranks; ++rank) trial.members.push_back(rank);
      for (const int64_t bytes : {256 * kKiB, 1024 * kKiB, 4096 * kKiB}) {
        trial.bytes = bytes;
        measured.points.push_back({bytes, gate_of(world, trial)});
      }
      machine.gates.push_back(std::move(measured));
    }
  }
  machine.link = fit_link(machine.gates.front().points, machine.gates.front().ranks);
  machine.link->name = machine.link->title = "shm";
}

}  // namespace coprime
