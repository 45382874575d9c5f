// Dummies contribute nothing, twice over: their source rows are zero, and so are the columns that read them. Each side
// is poisoned alone, with dummies held and computed, and the real output keeps its bits.
#include <gtest/gtest.h>

#include <bit>

#include "base/number_formats.h"
#include "worlds.h"

namespace coprime {
namespace {

enum class Side { kNone, kSources, kSinks };

bool is_sink(TensorId id) { return id == TensorId::kO || id == TensorId::kOut || id == TensorId::kDown; }

bool is_gap(const AxisMap& map, int64_t local) {
  return std::ranges::none_of(map.real,
                              [&](const Span& span) { return local >= span.local && local < span.local + span.count; });
}

// Overwrites the fill of the poisoned side on its way to the device.
class PoisonSink final : public WeightSink {
 public:
  PoisonSink(LocalTensor tensor, std::unique_ptr<WeightSink> next, Side side, int64_t& poisoned)
      : tensor_(std::move(tensor)), next_(std::move(next)), side_(side), poisoned_(poisoned) {}

  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    std::vector<std::byte> copy(bytes.begin(), bytes.end());
    const int64_t columns = tensor_.columns.extent;
    const bool sink = is_sink(tensor_.rule->id);
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t c = 0; c < columns; ++c) {
        const bool fill = sink ? is_gap(tensor_.columns, c) : is_gap(tensor_.rows, first + r);
        if (fill && sink == (side_ == Side::kSinks)) put(copy, r * columns + c, garbage());
      }
    }
    next_->rows(first, count, copy);
  }

 private:
  float garbage() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    const bool decay = tensor_.rule->id == TensorId::kALog || tensor_.rule->id == TensorId::kDtBias;
    ++poisoned_;
    return (static_cast<float>(state_ >> 40) * 0x1p-23f - 1.0f) * (decay ? 3.0f : 1000.0f);
  }
  void put(std::vector<std::byte>& bytes, int64_t element, float value) const {
    if (tensor_.type == DType::kF32) {
      std::memcpy(bytes.data() + element * 4, &value, 4);
    } else {
      const uint16_t bits = f32_to_bf16(value);
      std::memcpy(bytes.data() + element * 2, &bits, 2);
    }
  }

  LocalTensor tensor_;
  std::unique_ptr<WeightSink> next_;
  Side side_;
  int64_t& poisoned_;
  uint64_t state_ = 7;
};

std::vector<float> poisoned_logits(const Golden& golden, int ranks, Side side, int64_t& poisoned) {
  WorldOptions options = thread_world(golden, ranks);
  options.plan.dummies = Dummies::kHeld;
  std::array<int64_t, 16> counts{};  // the filter runs on the ranks' own threads: one count for each thread's rank
  std::atomic<int> next{0};
  options.launch.hooks.filter = [&, side](const LocalTensor& tensor,
                                          std::unique_ptr<WeightSink> sink) -> std::unique_ptr<WeightSink> {
    if (side == Side::kNone) return sink;
    thread_local const int mine = next++;
    return std::make_unique<PoisonSink>(tensor, std::move(sink), side, counts[static_cast<size_t>(mine)]);
  };
  auto logits = logits_of(options, golden.cases[0]);
  for (int64_t count : counts) poisoned += count;
  return logits;
}

class Poison : public testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Poison, in_sources_or_in_sinks_of_dummies_changes_no_bit_of_the_real_output) {
  const auto& [model, ranks] = GetParam();
  const Golden golden = read_golden(model);
  int64_t none = 0, sources = 0, sinks = 0;
  const auto expected = poisoned_logits(golden, ranks, Side::kNone, none);
  const auto with_sources = poisoned_logits(golden, ranks, Side::kSources, sources);
  const auto with_sinks = poisoned_logits(golden, ranks, Side::kSinks, sinks);
  EXPECT_GT(sources, 1000);  // else nothing was tried
  EXPECT_GT(sinks, 1000);
  EXPECT_EQ(expected, with_sources);  // == of float: -0 equals +0
  EXPECT_EQ(expected, with_sinks);
  EXPECT_LE(largest_difference(expected, golden.cases[0].logits), 1e-4f);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Poison,
                         testing::Combine(testing::Values("llama-9q3kv-tied", "qwen2-14q2kv-bias",
                                                          "qwen35-6q2kv-gdn4-12", "mini-qwen35"),
                                          testing::Values(3, 5, 7)),
                         [](const auto& which) {
                           std::string name =
                               fmt::format("{}_{}_ranks", std::get<0>(which.param), std::get<1>(which.param));
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// Poison on both sides at once must show, or the test above could not fail.
TEST(Poison, on_both_sides_shows) {
  const Golden golden = read_golden("llama-9q3kv-tied");
  WorldOptions options = thread_world(golden, 2);
  options.plan.dummies = Dummies::kHeld;
  const auto expected = logits_of(options, golden.cases[0]);
  static constexpr auto kBoth = [](const LocalTensor& tensor,
                                   std::unique_ptr<WeightSink> sink) -> std::unique_ptr<WeightSink> {
    thread_local int64_t count = 0;
    auto inner = std::make_unique<PoisonSink>(tensor, std::move(sink), Side::kSinks, count);
    return std::make_unique<PoisonSink>(tensor, std::move(inner), Side::kSources, count);
  };
  options.launch.hooks.filter = kBoth;
  EXPECT_NE(logits_of(options, golden.cases[0]), expected);
}

// A rank that adds or multiplies in another way where all must agree is found at its first gate.
TEST(ReplicatedState, has_the_same_bits_on_ranks_of_different_instruction_sets) {
  for (const std::string model : {"llama-9q3kv-tied", "qwen35-6q2kv-gdn4-12", "mini-qwen35"}) {
    const Golden golden = read_golden(model);
    WorldOptions options = thread_world(golden, 3);
    options.isa = {Isa::kReference, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};
    options.hash_gates = true;
    EXPECT_LE(largest_difference(logits_of(options, golden.cases[0]), golden.cases[0].logits), 1e-4f);
  }
}

TEST(ReplicatedState, that_differs_is_found_and_named) {
  const Golden golden = read_golden("llama-9q3kv-tied");
  WorldOptions options = thread_world(golden, 2);
  options.hash_gates = true;
  std::atomic<int> norms{0};
  struct Nudge final : WeightSink {
    std::unique_ptr<WeightSink> next;
    void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
      std::vector<std::byte> copy(bytes.begin(), bytes.end());
      copy[0] ^= std::byte{1};
      next->rows(first, count, copy);
    }
  };
  options.launch.hooks.filter = [&](const LocalTensor& tensor,
                                    std::unique_ptr<WeightSink> sink) -> std::unique_ptr<WeightSink> {
    if (tensor.rule->id != TensorId::kPostNorm || tensor.layer != 1 || norms++ > 0) return sink;  // on one rank only
    auto nudge = std::make_unique<Nudge>();
    nudge->next = std::move(sink);
    return nudge;
  };
  try {
    logits_of(options, golden.cases[0]);
    FAIL() << "nothing was found";
  } catch (const Error& error) {
    // The norm feeds layer 1's MLP, whose partial sums differ from then on only through the residual that follows.
    EXPECT_NE(std::string(error.what()).find("different bits after step 1, layer"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace coprime
