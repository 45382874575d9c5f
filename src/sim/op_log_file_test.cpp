#include "sim/op_log_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <random>

#include "base/error.h"
#include "sim/op_log_trace.h"

namespace coprime::sim {
namespace {

class OpLogFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / fmt::format("coprime-oplog-{}", ::getpid());
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string told(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    try {
      read_op_log(path_);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kModel);
      EXPECT_TRUE(std::string_view(error.what()).starts_with(path_.string()));
      return error.what();
    }
    return "accepted";
  }

  std::filesystem::path path_;
};

OpLogFile sample(size_t rows) {
  OpLogFile file{.chip = "sips 4 SIPs\n", .run = "decode --context 64", .log = {}};
  std::mt19937_64 random(3);
  Tick at = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    const Tick start = at += random() % 1000;
    file.log.append({.start = start,
                     .end = start + random() % 5000,
                     .bytes = random() % 4096,
                     .macs = random(),
                     .op = i + 1,
                     .cause_op = i,
                     .pe = static_cast<uint32_t>(random() % 512),
                     .line = static_cast<uint16_t>(random() % 100),
                     .kind = static_cast<OpKind>(random() % static_cast<size_t>(OpKind::kCount)),
                     .cause = static_cast<Cause>(random() % static_cast<size_t>(Cause::kCount))});
  }
  return file;
}

TEST_F(OpLogFileTest, comes_back_as_it_was_written) {
  for (const size_t rows : {0u, 1u, 7u, 1000u}) {
    const OpLogFile written = sample(rows);
    write_op_log(path_, written);
    const OpLogFile read = read_op_log(path_);
    EXPECT_EQ(read.chip, written.chip);
    EXPECT_EQ(read.run, written.run);
    EXPECT_EQ(read.log.macs, written.log.macs);
    EXPECT_EQ(read.log.line, written.log.line);
    EXPECT_EQ(read.log.cause, written.log.cause);
    EXPECT_EQ(op_log_hash(read.log), op_log_hash(written.log));
  }
}

TEST_F(OpLogFileTest, hash_sees_every_column_and_the_order_of_rows) {
  const OpLog log = sample(10).log;
  const uint64_t hash = op_log_hash(log);
  const auto differs = [&](const auto& change) {
    OpLog other = log;
    change(other);
    return op_log_hash(other) != hash;
  };
  EXPECT_TRUE(differs([](OpLog& l) { ++l.start[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { ++l.end[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { ++l.bytes[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { ++l.macs[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { ++l.op[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { ++l.cause_op[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { ++l.pe[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { ++l.line[3]; }));
  EXPECT_TRUE(differs([](OpLog& l) { l.kind[3] = l.kind[3] == OpKind::kLoad ? OpKind::kStore : OpKind::kLoad; }));
  EXPECT_TRUE(differs([](OpLog& l) { l.cause[3] = l.cause[3] == Cause::kNone ? Cause::kData : Cause::kNone; }));
  EXPECT_TRUE(differs([](OpLog& l) { std::swap(l.pe[1], l.pe[2]); }));
}

TEST_F(OpLogFileTest, refuses_what_is_cut_short_damaged_or_something_else) {
  write_op_log(path_, sample(20));
  const std::string whole = bytes();
  for (size_t size = 0; size < whole.size(); size += 13) EXPECT_NE(told(whole.substr(0, size)), "accepted") << size;
  EXPECT_NE(told(whole + "x").find("is it cut short?"), std::string::npos);
  EXPECT_NE(told("no op_log at all, but long enough to be one").find("no op_log"), std::string::npos);
  const auto with = [&](size_t at, auto value) {
    std::string copy = whole;
    std::memcpy(copy.data() + at, &value, sizeof value);
    return told(copy);
  };
  EXPECT_NE(with(16, uint32_t{2}).find("an op_log of version 2; expected 1: run the simulation again"),
            std::string::npos);
  EXPECT_NE(with(20, uint32_t{8}).find("a header of 8 bytes"), std::string::npos);
  EXPECT_NE(with(20, ~uint32_t{0}).find("a header of 4294967295 bytes"), std::string::npos);
  EXPECT_NE(with(24, ~uint64_t{0}).find("18446744073709551615 rows"), std::string::npos);
  EXPECT_NE(with(24, uint64_t{1} << 60).find("is it cut short?"), std::string::npos);
  EXPECT_NE(with(40, ~uint32_t{0}).find("its header ends within a value"), std::string::npos);
  EXPECT_NE(with(whole.size() - 300, uint8_t{0xee}).find("do not have the hash"), std::string::npos);
  std::string renamed = whole;
  renamed.replace(renamed.find("cause_op"), 8, "reason_x");
  EXPECT_NE(told(renamed).find("column reason_x of 4 bytes; expected cause_op of 4"), std::string::npos);
}

TEST_F(OpLogFileTest, refuses_rows_that_no_log_has) {
  OpLogFile file = sample(3);
  file.log.kind[1] = OpKind::kCount;
  write_op_log(path_, file);
  EXPECT_NE(told(bytes()).find("row 1 is none that an op_log has"), std::string::npos);
  file = sample(3);
  file.log.end[2] = file.log.start[2] - 1;
  write_op_log(path_, file);
  EXPECT_NE(told(bytes()).find("row 2 is none"), std::string::npos);
}

// The bytes are trace/perfetto_trace_test.cpp's; here: which tracks there are.
TEST_F(OpLogFileTest, as_a_trace_has_a_track_for_each_engine_and_one_more_for_what_overlaps) {
  OpLog log;
  log.append({.start = 0, .end = 500, .op = 1, .pe = 9, .kind = OpKind::kFetch});
  log.append({.start = 100, .end = 600, .op = 2, .pe = 9, .kind = OpKind::kFetch});
  log.append({.start = 500, .end = 700, .op = 3, .pe = 9, .kind = OpKind::kFetch});
  log.append({.start = 700, .end = 900, .op = 4, .cause_op = 3, .pe = 9, .kind = OpKind::kSubtile});
  write_op_log_trace(path_, ahbm_chip(), log);
  const std::string trace = bytes();
  const auto count = [&](std::string_view name) {
    int found = 0;
    for (size_t at = trace.find(name); at != std::string::npos; at = trace.find(name, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("DMA"), 2);
  EXPECT_EQ(count("GEMM"), 1);
  EXPECT_EQ(count("MATH"), 0);
  EXPECT_EQ(count("SIP 0"), 1);
  EXPECT_EQ(count("CUBE 1"), 1);
  EXPECT_EQ(count("PE 1"), 1);
  EXPECT_TRUE(is_op_log_trace(path_));
  EXPECT_FALSE(is_op_log(path_));
}

TEST_F(OpLogFileTest, knows_its_own_files_from_others) {
  write_op_log(path_, sample(3));
  EXPECT_TRUE(is_op_log(path_));
  EXPECT_FALSE(is_op_log_trace(path_));
  std::filesystem::resize_file(path_, 10);
  EXPECT_FALSE(is_op_log(path_));
  EXPECT_FALSE(is_op_log_trace(path_));
}

TEST(OpLog, every_kind_and_cause_has_a_name_and_an_engine) {
  for (size_t i = 0; i < static_cast<size_t>(OpKind::kCount); ++i) {
    EXPECT_FALSE(name_of(static_cast<OpKind>(i)).empty());
    EXPECT_FALSE(engine_of(static_cast<OpKind>(i)).empty());
  }
  for (size_t i = 0; i < static_cast<size_t>(Cause::kCount); ++i) EXPECT_FALSE(name_of(static_cast<Cause>(i)).empty());
  EXPECT_EQ(name_of(OpKind::kRecv), "recv");
  EXPECT_EQ(name_of(Cause::kBuffer), "buffer");
}

}  // namespace
}  // namespace coprime::sim
