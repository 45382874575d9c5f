#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <sstream>

#include "base/error.h"
#include "base/hash.h"
#include "base/number_formats.h"
#include "base/output_file.h"
#include "base/scalar_math.h"

namespace coprime {
namespace {

TEST(NumberFormats, every_bf16_survives_the_way_through_float) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = bf16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(f32_to_bf16(value), bits);
  }
}

TEST(NumberFormats, every_f16_survives_the_way_through_float) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    EXPECT_EQ(f32_to_f16(value), bits);
  }
}

// The compiler's own half type is the oracle.
TEST(NumberFormats, halves_are_the_compilers_halves) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = f16_to_f32(static_cast<uint16_t>(bits));
    const auto native = std::bit_cast<_Float16>(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      EXPECT_EQ(value, static_cast<float>(native));
    }
  }
  for (uint64_t i = 0; i < 2'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(i * 2147483629u));
    if (std::isnan(value)) continue;
    EXPECT_EQ(f32_to_f16(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << value;
  }
}

TEST(NumberFormats, bf16_rounds_to_nearest_even) {
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie goes to even
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
}

TEST(ScalarMath, agrees_with_the_c_library_to_a_few_units_of_the_last_place) {
  for (int i = -20000; i <= 20000; ++i) {
    const double x = i * 0.0317;
    const double expected = std::exp(x);
    EXPECT_NEAR(portable_exp(x) / expected, 1.0, 1e-15) << x;
    double sine, cosine;
    portable_sincos(x * 40, &sine, &cosine);
    EXPECT_NEAR(sine, std::sin(x * 40), 2e-15) << x;
    EXPECT_NEAR(cosine, std::cos(x * 40), 2e-15) << x;
    const double y = std::exp(x * 0.3);
    EXPECT_NEAR(portable_log(y), std::log(y), 1e-15 * std::max(1.0, std::abs(std::log(y)))) << y;
  }
}

TEST(ScalarMath, sine_holds_at_the_positions_of_long_contexts) {
  for (double x : {1e5, 262143.0, 1048575.0, 3e6}) {
    double sine, cosine;
    portable_sincos(x, &sine, &cosine);
    EXPECT_NEAR(sine, std::sin(x), 1e-9) << x;
    EXPECT_NEAR(cosine, std::cos(x), 1e-9) << x;
  }
}

TEST(Errors, each_kind_has_its_exit_code) {
  EXPECT_EQ(exit_code(ErrorKind::kInternal), 1);
  EXPECT_EQ(exit_code(ErrorKind::kUsage), 2);
  EXPECT_EQ(exit_code(ErrorKind::kModel), 3);
  EXPECT_EQ(exit_code(ErrorKind::kLink), 4);
}

TEST(OutputFile, takes_the_place_of_what_was_there_or_leaves_it) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("coprime-output-{}", ::getpid());
  std::ofstream(path) << "something longer that was there before";
  const auto held = [&] {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const std::string_view one = "one ", two = "two";
  const std::array parts{std::as_bytes(std::span(one)), std::as_bytes(std::span(two))};
  EXPECT_THROW(write_output("/no/such/folder/file", parts), Error);
  EXPECT_THROW(write_output("/dev/full", parts), Error);
  EXPECT_EQ(held(), "something longer that was there before");
  write_output(path, parts);
  EXPECT_EQ(held(), "one two");
  {
    OutputFile file(path);
    file.write_at(4, std::as_bytes(std::span(one)));
    file.write(std::as_bytes(std::span(two)));
    EXPECT_EQ(held(), "one two");  // not there before it is finished
  }
  EXPECT_EQ(held(), "one two");
  OutputFile file(path);
  file.write_at(3, std::as_bytes(std::span(one)));
  file.write(std::as_bytes(std::span(two)));
  file.finish();
  EXPECT_EQ(held(), "twoone ");
  std::filesystem::remove(path);
}

TEST(Hash, one_changed_bit_changes_it) {
  std::array<std::byte, 100> bytes{};
  const uint64_t before = hash_bytes(bytes);
  bytes[57] ^= std::byte{1};
  EXPECT_NE(hash_bytes(bytes), before);
}

}  // namespace
}  // namespace coprime
