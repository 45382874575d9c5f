// Data mode against answers from outside: closed forms, and attention in f64.
#include <gtest/gtest.h>

#include "sim/run.h"
#include "sim/testing/attention_oracle.h"

namespace coprime::sim {
namespace {

using tl::DecodeVariant;

constexpr DecodeVariant kVariants[] = {DecodeVariant::kOpt1, DecodeVariant::kOpt3, DecodeVariant::kOpt3v,
                                       DecodeVariant::kOpt2};
struct GroupSize {
  int cubes, pes;
};
constexpr GroupSize kSizes[] = {{1, 1}, {1, 8}, {2, 8}, {8, 8}};

RunSpec spec_of(GroupSize size, DecodeVariant variant, int64_t context, std::shared_ptr<const Inputs> inputs) {
  RunSpec spec;
  spec.cubes = size.cubes, spec.pes = size.pes;
  spec.variant = variant, spec.context = context;
  spec.kv_heads = 2;
  spec.inputs = std::move(inputs);
  return spec;
}

TEST(DecodeData, ZeroQueriesCountEveryTokenOnce) {
  for (const GroupSize size : kSizes) {
    for (const DecodeVariant variant : kVariants) {
      for (const int64_t context : {int64_t{1}, int64_t{65}, int64_t{1000}, int64_t{4096}}) {
        const RunResult result = run(ahbm_chip(), spec_of(size, variant, context, std::make_shared<ZeroQueries>()));
        ASSERT_EQ(result.outputs.size(), 2u);
        for (const HeadOutput& head : result.outputs) {
          EXPECT_EQ(head.stores, 1);
          for (const float l : head.l) EXPECT_EQ(l, static_cast<float>(context)) << size.cubes << " " << size.pes;
        }
      }
    }
  }
}

TEST(DecodeData, AnyNumberOfPesCountsEveryTokenOnce) {
  for (int pes = 1; pes <= 8; ++pes) {
    const RunSpec spec = spec_of({2, pes}, DecodeVariant::kOpt3, 1000, std::make_shared<ZeroQueries>());
    const RunResult result = run(ahbm_chip(), spec);
    for (const HeadOutput& head : result.outputs) {
      for (const float l : head.l) EXPECT_EQ(l, 1000.f) << pes;
    }
    EXPECT_EQ(result.totals.levels[0].byte_hops, result.totals.levels[0].sent) << pes;
  }
}

TEST(DecodeData, ZeroQueriesGiveTheMeanOfTheValues) {
  const auto inputs = std::make_shared<ZeroQueries>();
  const RunSpec spec = spec_of({2, 8}, DecodeVariant::kOpt3, 3000, inputs);
  const RunResult result = run(ahbm_chip(), spec);
  for (int head = 0; head < 2; ++head) {
    const std::vector<double> mean = attend(*inputs, head, 0, spec.context, spec.d);
    for (size_t i = 0; i < mean.size(); ++i) {
      EXPECT_NEAR(double{result.outputs[static_cast<size_t>(head)].o[i]}, mean[i], std::abs(mean[i]) / 256 + 1e-6);
    }
  }
}

TEST(DecodeDataSoak, ALayerOfAMillionTokensCountsEachOfThemOnce) {
  const auto inputs = std::make_shared<ZeroQueries>();
  RunSpec spec = spec_of({8, 8}, DecodeVariant::kOpt3, 1 << 20, inputs);
  spec.kv_heads = 8;
  const RunResult result = run(ahbm_chip(), spec);
  ASSERT_EQ(result.outputs.size(), 8u);
  for (const HeadOutput& head : result.outputs) {
    EXPECT_EQ(head.stores, 1);
    for (const float l : head.l) EXPECT_EQ(l, static_cast<float>(spec.context));
  }
  const std::vector<double> mean = attend(*inputs, 7, 0, spec.context, spec.d);
  for (size_t i = 0; i < mean.size(); ++i)
    EXPECT_NEAR(double{result.outputs[7].o[i]}, mean[i], std::abs(mean[i]) / 256 + 1e-6);
}

TEST(DecodeData, ResidueValuesCountTheTokensOfEachResidue) {
  const RunSpec spec = spec_of({8, 8}, DecodeVariant::kOpt3v, 128 * 61 + 5, std::make_shared<ResidueValues>());
  const RunResult result = run(ahbm_chip(), spec);
  for (const HeadOutput& head : result.outputs) {
    for (size_t i = 0; i < head.o.size(); ++i) {
      const float count = static_cast<float>(i % 128 < 5 ? 62 : 61);
      EXPECT_EQ(head.o[i], bf16_to_f32(f32_to_bf16(count / static_cast<float>(spec.context)))) << i;
    }
  }
}

TEST(GateG1, DecodeMatchesAttentionInF64OfAsymmetricInputs) {
  const auto inputs = std::make_shared<CounterInputs>(7);
  for (const GroupSize size : kSizes) {
    for (const DecodeVariant variant : kVariants) {
      const RunSpec spec = spec_of(size, variant, 1111, inputs);
      const RunResult result = run(ahbm_chip(), spec);
      for (int head = 0; head < 2; ++head) {
        for (const int64_t row : {int64_t{0}, int64_t{7}}) {
          const std::vector<double> expected = attend(*inputs, head, row, spec.context, spec.d);
          for (size_t i = 0; i < expected.size(); ++i) {
            // P, and the output, are rounded to bf16: half a unit of 2^-8 each, of numbers below 2.
            EXPECT_NEAR(double{result.outputs[static_cast<size_t>(head)].o[static_cast<size_t>(row) * 128 + i]},
                        expected[i], 2. / 256);
          }
        }
      }
    }
  }
}

TEST(DecodeData, AllVariantsGiveTheSameBits) {
  const auto inputs = std::make_shared<CounterInputs>(3);
  const RunResult first = run(ahbm_chip(), spec_of({2, 8}, kVariants[0], 5000, inputs));
  for (const DecodeVariant variant : kVariants) {
    const RunResult other = run(ahbm_chip(), spec_of({2, 8}, variant, 5000, inputs));
    for (size_t head = 0; head < 2; ++head) EXPECT_EQ(first.outputs[head].o, other.outputs[head].o);
  }
}

}  // namespace
}  // namespace coprime::sim
