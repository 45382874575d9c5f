// Logits and greedy tokens against transformers, at every rank count, over every link, by both devices.
#include <gtest/gtest.h>

#include "worlds.h"

namespace coprime {
namespace {

constexpr float kTolerance = 1e-4f;

struct Case {
  std::string model;
  int ranks;
  Link link = Link::kShm;
  Isa isa = Isa::kAmx;
  RanksAs as = RanksAs::kThreads;
  bool exact = false;
  DType kv = DType::kF32;
};

// The test's name says it all.
void PrintTo(const Case& c, std::ostream* out) { *out << c.model; }

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const Case& c = info.param;
  std::string text = fmt::format("{}_{}_ranks_{}_{}_{}{}", c.model, c.ranks, c.link == Link::kShm ? "shm" : "tcp",
                                 c.isa == Isa::kReference ? "reference" : "fast",
                                 c.as == RanksAs::kThreads ? "threads" : "processes", c.exact ? "_exact" : "");
  std::ranges::replace(text, '-', '_');
  return text;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string model : {"llama-9q3kv-tied", "qwen2-14q2kv-bias", "qwen35-6q2kv-gdn4-12",
                                  "qwen3-10q2kv-untied", "llama3-rope-untied", "mini-qwen35"}) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (Link link : {Link::kShm, Link::kTcp}) {
        all.push_back({model, ranks, link});
        all.push_back({model, ranks, link, Isa::kAmx, RanksAs::kProcesses});
      }
      if (model != "mini-qwen35" || ranks == 3) all.push_back({model, ranks, Link::kShm, Isa::kReference});
      all.push_back({model, ranks, Link::kShm, Isa::kAmx, RanksAs::kThreads, true});
    }
  }
  for (int ranks : {13, 16}) {
    all.push_back({"qwen35-6q2kv-gdn4-12", ranks});
    all.push_back({"llama-9q3kv-tied", ranks, Link::kTcp});
  }
  return all;
}

class GoldenWorld : public testing::TestWithParam<Case> {
 protected:
  WorldOptions options() const {
    WorldOptions options = thread_world(golden_, GetParam().ranks);
    options.link = GetParam().link;
    options.isa = {GetParam().isa};
    options.plan.exact = GetParam().exact;
    options.launch.as = GetParam().as;
    options.launch.program = COPRIME_PROGRAM;
    options.hash_gates = true;
    return options;
  }
  const Golden golden_ = read_golden(GetParam().model);
};

TEST_P(GoldenWorld, logits_are_those_of_transformers) {
  Front front(options());
  float worst = 0;
  for (const GoldenCase& c : golden_.cases) {
    worst = std::max(worst, largest_difference(teacher_forced_logits(front, c.ids, c.batch, c.length), c.logits));
  }
  EXPECT_LE(worst, kTolerance);
  RecordProperty("largest_difference", fmt::format("{:.3g}", worst));
}

// The top-2 margin at the place where a continuation leaves the golden one.
float margin_at(Front& front, const GoldenGreedy& golden, size_t place) {
  std::vector<int32_t> ids = golden.prompt;
  ids.insert(ids.end(), golden.continuation.begin(), golden.continuation.begin() + static_cast<ptrdiff_t>(place));
  auto logits = teacher_forced_logits(front, ids, 1, static_cast<int64_t>(ids.size()));
  std::span last = std::span(logits).last(static_cast<size_t>(front.plan().shape().vocab));
  std::ranges::nth_element(last, last.begin() + 1, std::greater());
  return last[0] - last[1];
}

TEST_P(GoldenWorld, greedy_tokens_are_those_of_transformers_wherever_the_margin_is_clear) {
  Front front(options());
  // The reference takes a hundred times as long; its logits are compared in full above.
  const size_t step = GetParam().isa == Isa::kReference ? 4 : 1;
  for (size_t i = 0; i < golden_.greedy.size(); i += step) {
    const GoldenGreedy& golden = golden_.greedy[i];
    const Generation generation =
        generate(front, {.prompt = golden.prompt,
                         .max_tokens = golden_.eos.empty() ? static_cast<int64_t>(golden.continuation.size()) : 150,
                         .eos = golden_.eos});
    const size_t common =
        static_cast<size_t>(std::ranges::mismatch(generation.ids, golden.continuation).in1 - generation.ids.begin());
    if (common == golden.continuation.size() && generation.ids.size() == common) continue;
    const float margin = margin_at(front, golden, common);
    std::printf("a flip after %zu tokens, margin %g\n", common, margin);
    EXPECT_LE(margin, 2 * kTolerance) << "after " << common << " tokens";
  }
}

// What docs/keys-and-values.md says that each type costs in the logits of the embedded model.
TEST(KeysAndValues, of_each_type_cost_as_much_as_is_said_and_no_more) {
  const Golden golden = read_golden("mini-qwen35");
  for (const auto& [type, most] : {std::pair{DType::kF16, 9e-3f}, {DType::kBF16, 5e-2f}, {DType::kF8E4M3, 1.0f}}) {
    for (const Isa isa : {Isa::kAvx512, Isa::kReference}) {
      WorldOptions options = thread_world(golden, isa == Isa::kReference ? 1 : 3);
      options.kv_type = type;
      options.isa = {isa};
      float worst = 0;
      for (const GoldenCase& c : golden.cases)
        worst = std::max(worst, largest_difference(logits_of(options, c), c.logits));
      EXPECT_LE(worst, most) << dtype_name(type) << " " << isa_name(isa);
      EXPECT_GE(worst, most / 4) << "what is said is too much: " << dtype_name(type) << " " << isa_name(isa);
      std::printf("%s %s: %g\n", dtype_name(type).data(), isa_name(isa).data(), worst);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, GoldenWorld, testing::ValuesIn(cases()), name_of);

}  // namespace
}  // namespace coprime
