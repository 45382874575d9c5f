#include "device/cpu/quant/quant_widened.h"

#include <gtest/gtest.h>

#include "device/cpu/quant/quant_testing.h"
#include "device/testing.h"

namespace coprime {
namespace {

using testing::Matrix;
using testing::QuantMatrix;

TEST(QuantWidened, has_the_bits_of_fused_additions_in_the_order_of_columns) {
  for (Isa isa : testing::available_isas()) {
    const int linear = select_kernel(linear_kernels(), {isa, DType::kF32});
    for (DType type : kQuantTypes) {
      const auto& quant =
          quant_kernels()[static_cast<size_t>(select_quant_kernel(quant_kernels(), {isa, cpu_features(), type}))];
      const QuantMatrix weight = testing::random_quant_matrix(type, 37, 24, 1);
      const std::vector<float> bias = testing::random_floats(37, 2);
      for (auto [lead, columns] : {std::pair<int64_t, int64_t>{0, 768}, {64, 700}, {201, 1}, {31, 34}}) {
        for (int64_t m : {1, 9}) {
          Matrix x = testing::random_matrix(m, columns, 3), y(m, 37, 2);
          const Buffer scratch(static_cast<size_t>(widened_scratch(columns)) * sizeof(float));
          WidenedWork work{type, weight.tiles.data(), bias.data(), 37, 24, lead, 0, 2, x.view(), y.view()};
          work.scratch = scratch.as<float>();
          const LinearFn multiply = linear_kernels()[static_cast<size_t>(linear)].fn;
          multiply_widened(quant.functions.widen, multiply, work);
          work.first_tile = 2, work.last_tile = 3;
          multiply_widened(quant.functions.widen, multiply, work);
          for (int64_t r = 0; r < m; ++r) {
            for (int64_t n = 0; n < 37; ++n) {
              std::vector<float> w(static_cast<size_t>(columns));
              read_quant_row(type, weight.tiles.data(), 24, n, lead, columns, w.data());
              float sum = 0;
              for (int64_t k = 0; k < columns; ++k) sum = std::fma(w[static_cast<size_t>(k)], x.view().row(r)[k], sum);
              ASSERT_EQ(y.view().row(r)[n], sum + bias[static_cast<size_t>(n)])
                  << quant.name << " output " << n << ", " << columns << " columns after " << lead;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace coprime
