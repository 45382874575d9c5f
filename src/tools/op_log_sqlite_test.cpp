#include "tools/op_log_sqlite.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include "base/error.h"

namespace coprime {
namespace {

std::string ask(const std::filesystem::path& path, const std::string& question) {
  sqlite3* handle = nullptr;
  EXPECT_EQ(sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  std::string answer;
  const auto row = [](void* into, int columns, char** values, char**) {
    for (int i = 0; i < columns; ++i)
      *static_cast<std::string*>(into) += std::string(i ? "|" : "") + (values[i] ? values[i] : "null");
    *static_cast<std::string*>(into) += "\n";
    return 0;
  };
  EXPECT_EQ(sqlite3_exec(handle, question.c_str(), row, &answer, nullptr), SQLITE_OK) << sqlite3_errmsg(handle);
  sqlite3_close(handle);
  return answer;
}

TEST(OpLogSqlite, answers_questions_about_the_rows) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("coprime-oplog-{}.sqlite", ::getpid());
  sim::OpLogFile file{.chip = "sips 1 SIPs\n", .run = "decode", .log = {}};
  file.log.append({.start = 0, .end = 400, .bytes = 4096, .op = 1, .pe = 3, .kind = sim::OpKind::kFetch});
  file.log.append({.start = 400,
                   .end = 1000,
                   .macs = uint64_t{1} << 40,
                   .op = 2,
                   .cause_op = 1,
                   .pe = 3,
                   .line = 17,
                   .kind = sim::OpKind::kSubtile,
                   .cause = sim::Cause::kData});
  write_op_log_sqlite(path, file);
  write_op_log_sqlite(path, file);  // over the old one
  EXPECT_EQ(ask(path, "SELECT engine, sum(ps) FROM ops GROUP BY engine ORDER BY 1"), "DMA|400\nGEMM|600\n");
  EXPECT_EQ(ask(path, "SELECT b.kind, a.kind, a.cause, a.macs, a.line FROM ops a JOIN ops b ON b.op = a.cause_op"),
            "fetch|subtile|data|1099511627776|17\n");
  EXPECT_EQ(ask(path, "SELECT value FROM run WHERE key = 'hash'"), fmt::format("{:016x}\n", op_log_hash(file.log)));
  EXPECT_TRUE(is_op_log_sqlite(path));
  std::filesystem::remove(path);
}

TEST(OpLogSqlite, that_cannot_be_written_leaves_nothing) {
  const sim::OpLogFile file;
  EXPECT_THROW(write_op_log_sqlite("/nowhere/at/all.sqlite", file), Error);
}

TEST(OpLogSqlite, that_is_stopped_leaves_nothing) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("coprime-oplog-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto stop = [](size_t, size_t) { fail(ErrorKind::kInternal, "interrupted"); };
  EXPECT_THROW(write_op_log_sqlite(folder / "ops.sqlite", {}, stop), Error);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::filesystem::remove_all(folder);
}

TEST(OpLogSqlite, knows_its_own_databases_from_others) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("coprime-other-{}.sqlite", ::getpid());
  std::filesystem::remove(path);
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &handle), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(handle, "CREATE TABLE op(op INTEGER)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(handle);
  EXPECT_FALSE(is_op_log_sqlite(path));
  std::filesystem::resize_file(path, 40);
  EXPECT_FALSE(is_op_log_sqlite(path));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace coprime
