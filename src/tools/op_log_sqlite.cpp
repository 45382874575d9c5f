#include "tools/op_log_sqlite.h"

#include <sqlite3.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/input_file.h"
#include "base/output_file.h"

namespace coprime {
namespace {

constexpr uint32_t kApplication = 0x636f7072;  // "copr", of the file header: sqlite.org/fileformat2.html

constexpr const char* kSchema = R"(
PRAGMA application_id = 0x636f7072;
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
BEGIN;
CREATE TABLE kind(id INTEGER PRIMARY KEY, name TEXT, engine TEXT);
CREATE TABLE cause(id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE run(key TEXT PRIMARY KEY, value TEXT);
CREATE TABLE op(op INTEGER, kind INTEGER, pe INTEGER, line INTEGER, start_ps INTEGER, end_ps INTEGER, bytes INTEGER,
                macs INTEGER, cause INTEGER, cause_op INTEGER);
CREATE VIEW ops AS
  SELECT op.op, kind.name AS kind, kind.engine AS engine, op.pe, op.line, op.start_ps, op.end_ps,
         op.end_ps - op.start_ps AS ps, op.bytes, op.macs, cause.name AS cause, op.cause_op
  FROM op JOIN kind ON kind.id = op.kind JOIN cause ON cause.id = op.cause;
)";

constexpr size_t kRowsOfProgress = 1 << 16;

// A database while it is made, beside its place.
class Database {
 public:
  explicit Database(const std::filesystem::path& target)
      : target_(target), path_(target.string() + fmt::format(".{}.part", ::getpid())) {
    check_output(target);
    std::filesystem::remove(path_);
    check(sqlite3_open(path_.c_str(), &handle_));
  }
  Database(const Database&) = delete;
  ~Database() {
    sqlite3_close(handle_);
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }

  void execute(const char* sql) { check(sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr)); }
  void finish() {
    check(sqlite3_close(handle_));
    handle_ = nullptr;
    std::error_code error;
    std::filesystem::rename(path_, target_, error);
    if (error) fail(ErrorKind::kModel, "{}: {}", target_.string(), error.message());
  }

  // One statement, run again and again.
  class Statement {
   public:
    Statement(Database& database, const char* sql) : database_(database) {
      sqlite3_stmt* statement = nullptr;
      database.check(sqlite3_prepare_v2(database.handle_, sql, -1, &statement, nullptr));
      statement_.reset(statement);
    }
    template <class... Values>
    void run(const Values&... values) {
      int at = 0;
      (bind(++at, values), ...);
      if (const int result = sqlite3_step(statement_.get()); result != SQLITE_DONE) database_.check(result);
      database_.check(sqlite3_reset(statement_.get()));
    }

   private:
    void bind(int at, std::string_view text) {
      database_.check(
          sqlite3_bind_text(statement_.get(), at, text.data(), static_cast<int>(text.size()), SQLITE_TRANSIENT));
    }
    template <class Number>
    requires std::is_integral_v<Number>
    void bind(int at, Number number) {
      database_.check(sqlite3_bind_int64(statement_.get(), at, static_cast<sqlite3_int64>(number)));
    }

    struct Finalize {
      void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
    };
    Database& database_;
    std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  };

 private:
  void check(int result) const {
    if (result != SQLITE_OK)
      fail(ErrorKind::kModel, "{}: {}; is there room on the disk?", target_.string(), sqlite3_errmsg(handle_));
  }

  std::filesystem::path target_, path_;
  sqlite3* handle_ = nullptr;
};

}  // namespace

void write_op_log_sqlite(const std::filesystem::path& path, const sim::OpLogFile& file,
                         const std::function<void(size_t row, size_t rows)>& progress) {
  Database database(path);
  database.execute(kSchema);
  {
    Database::Statement kind(database, "INSERT INTO kind VALUES (?, ?, ?)");
    for (uint32_t i = 0; i < static_cast<uint32_t>(sim::OpKind::kCount); ++i)
      kind.run(i, name_of(static_cast<sim::OpKind>(i)), engine_of(static_cast<sim::OpKind>(i)));
    Database::Statement cause(database, "INSERT INTO cause VALUES (?, ?)");
    for (uint32_t i = 0; i < static_cast<uint32_t>(sim::Cause::kCount); ++i)
      cause.run(i, name_of(static_cast<sim::Cause>(i)));
    Database::Statement run(database, "INSERT INTO run VALUES (?, ?)");
    run.run(std::string_view("chip"), std::string_view(file.chip));
    run.run(std::string_view("run"), std::string_view(file.run));
    run.run(std::string_view("hash"), std::string_view(fmt::format("{:016x}", op_log_hash(file.log))));
    const sim::OpLog& log = file.log;
    Database::Statement op(database, "INSERT INTO op VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
    for (size_t i = 0; i < log.size(); ++i) {
      if (progress && i % kRowsOfProgress == 0) progress(i, log.size());
      op.run(log.op[i], static_cast<uint32_t>(log.kind[i]), log.pe[i], log.line[i], log.start[i], log.end[i],
             log.bytes[i], log.macs[i], static_cast<uint32_t>(log.cause[i]), log.cause_op[i]);
    }
  }
  database.execute("CREATE INDEX op_op ON op(op); COMMIT");
  if (progress) progress(file.log.size(), file.log.size());
  database.finish();
}

bool is_op_log_sqlite(const std::filesystem::path& path) {
  constexpr std::string_view kMagic = "SQLite format 3";  // 15 bytes and a zero
  constexpr size_t kApplicationAt = 68;                   // 4 bytes, the highest first
  const InputFile file = InputFile::open(path);
  std::array<std::byte, kApplicationAt + 4> header{};
  if (file.bytes() < header.size()) return false;
  file.read(0, header);
  uint32_t application = 0;
  for (size_t i = 0; i < 4; ++i) application = application << 8 | std::to_integer<uint32_t>(header[kApplicationAt + i]);
  return std::memcmp(header.data(), kMagic.data(), kMagic.size() + 1) == 0 && application == kApplication;
}

}  // namespace coprime
