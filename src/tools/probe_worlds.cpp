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

std::string config_of(bool linear, int layers) {
  const std::string common = fmt::format(
      R"("hidden_size":256,"intermediate_size":64,"num_hidden_layers":{},"num_attention_heads":4,)"
      R"("num_key_value_heads":1,"head_dim":32,"vocab_size":256,"max_position_embeddings":4096,"tie_word_embeddings":true)",
      layers);
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
  double rank_us = 0, front_us = 0;
};

// Of a step of decode of one rank.
StepFigures step_of(bool linear, int layers, int threads) {
  const SmallModel model(config_of(linear, layers));
  WorldOptions options{.model = model.path(), .threads = threads, .max_rows = 1, .context = 512};
  Front front(options);
  // The quietest of some short rounds.
  const BenchOptions bench{.prompt_tokens = 1, .decode_tokens = 40};
  StepFigures best{.rank_us = 1e9};
  for (int round = 0; round < 8; ++round) {
    BenchRun run = run_bench_round(front, bench);
    std::ranges::sort(run.step_ms);
    const double step_us = run.step_ms[run.step_ms.size() / 2] * 1e3, rank_us = run.compute_ms * 1e3;
    if (rank_us < best.rank_us) best = {rank_us, std::max(step_us - rank_us, 0.0)};
  }
  return best;
}

}  // namespace

void probe_layers(const ProbeCores& cores, MachineHost& host) {
  constexpr int kFew = 4, kMany = 24;
  for (const int threads : cores.threads) {
    LayerFigure figure{.threads = threads};
    for (const bool linear : {false, true}) {
      const StepFigures few = step_of(linear, kFew, threads), many = step_of(linear, kMany, threads);
      (linear ? figure.linear_us : figure.attention_us) = std::max((many.rank_us - few.rank_us) / (kMany - kFew), 0.01);
      if (!linear && threads == cores.cores) host.front_us = few.front_us;
    }
    host.layers.push_back(figure);
  }
}

void probe_gates(const ProbeCores& cores, Machine& machine) {
  constexpr int64_t kKiB = 1024;
  for (const Link wish : {Link::kShm, Link::kTcp}) {
    for (const int ranks : {2, 3, 4}) {
      if (ranks > std::max(cores.cores, 2)) continue;
      RankedLinkWorld world({.ranks = ranks, .wish = wish});
      LinkTrial trial{.kind = LinkTrial::Kind::kGate};
      for (int rank = 0; rank < ranks; ++rank) trial.members.push_back(rank);
      MeasuredGates measured{.link = std::string(link_name(wish)), .ranks = ranks};
      for (const int64_t bytes : {kKiB, 4 * kKiB, 8 * kKiB, 16 * kKiB, 32 * kKiB, 64 * kKiB, 1024 * kKiB}) {
        trial.bytes = bytes;
        trial.repeat = bytes > 64 * kKiB ? 30 : 400;
        const std::vector<TrialReport> reports = world.run(trial);
        std::vector<int64_t> times = reports[0].times.gate;
        for (const TrialReport& report : reports) {
          if (!report.failure.empty())
            fail(ErrorKind::kLink, "a gate of {} ranks over {}: {}", ranks, measured.link, report.failure);
          for (size_t i = 0; i < times.size(); ++i) times[i] = std::max(times[i], report.times.gate.at(i));
        }
        measured.points.push_back({bytes, figures_of(std::move(times)).p50});
      }
      machine.gates.push_back(std::move(measured));
    }
  }
  machine.link = fit_link(machine.gates.front().points, machine.gates.front().ranks);
  machine.link.name = machine.link.title = "shm";
}

}  // namespace coprime
