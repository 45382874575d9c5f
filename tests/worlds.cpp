#include "worlds.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "checkpoint/safetensors.h"

namespace coprime {
namespace {

template <class T>
std::vector<T> read_tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* tensor = file.find(name);
  COPRIME_CHECK(tensor != nullptr, "{}", name);
  std::vector<T> values(tensor->bytes / sizeof(T));
  file.read(tensor->offset, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace

std::filesystem::path golden_directory(const std::string& name) {
  const std::filesystem::path root = COPRIME_SOURCE_DIR;
  return name == "mini-qwen35" ? root / "models" / name : root / "tests/goldens" / name;
}

Golden read_golden(const std::string& name) {
  Golden golden{.name = name, .directory = golden_directory(name)};
  const SafetensorsFile file = SafetensorsFile::open(golden.directory / "golden.safetensors");
  if (name == "mini-qwen35") {
    golden.eos = {573, 571};
    for (int i = 0; i < 4; ++i) {
      GoldenCase c{.ids = read_tensor<int32_t>(file, fmt::format("ids.{}", i)),
                   .logits = read_tensor<float>(file, fmt::format("logits.{}", i))};
      c.length = static_cast<int64_t>(c.ids.size());
      golden.cases.push_back(std::move(c));
    }
    for (int i = 0; i < 24; ++i) {
      golden.greedy.push_back({read_tensor<int32_t>(file, fmt::format("prompt.{}", i)),
                               read_tensor<int32_t>(file, fmt::format("greedy.{}", i))});
    }
    return golden;
  }
  GoldenCase c{.batch = 2,
               .length = 77,
               .ids = read_tensor<int32_t>(file, "input_ids"),
               .logits = read_tensor<float>(file, "logits")};
  const auto greedy = read_tensor<int32_t>(file, "greedy");
  for (int row = 0; row < 2; ++row) {
    golden.greedy.push_back({{c.ids.begin() + row * 77, c.ids.begin() + row * 77 + 40},
                             {greedy.begin() + row * 24, greedy.begin() + row * 24 + 24}});
  }
  golden.cases.push_back(std::move(c));
  return golden;
}

WorldOptions thread_world(const Golden& golden, int ranks) {
  WorldOptions options;
  options.model = golden.directory;
  options.plan.ranks = ranks;
  options.threads = 1;
  options.context = 256;
  options.sequences = 2;
  options.gate_timeout_ms = 60'000;
  options.launch.as = RanksAs::kThreads;
  return options;
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  COPRIME_CHECK(a.size() == b.size(), "{} {}", a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return INFINITY;
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

std::vector<float> logits_of(const WorldOptions& options, const GoldenCase& golden) {
  Front front(options);
  return teacher_forced_logits(front, golden.ids, golden.batch, golden.length);
}

}  // namespace coprime
