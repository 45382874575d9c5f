// An op_log as a SQLite database, for questions in SQL: docs/simulator.md has some.
//
//   op(op, kind, pe, line, start_ps, end_ps, bytes, macs, cause, cause_op)   numbers, as in the op_log
//   kind(id, name, engine), cause(id, name)                                  what they are called
//   ops                                                                      a view of op with names and duration
//   run(key, value)                                                          the chip, the run, the hash
#pragma once

#include <filesystem>

#include "sim/op_log_file.h"

namespace coprime {

// Writes the whole file or nothing. Error(kModel) when it cannot be written.
void write_op_log_sqlite(const std::filesystem::path& path, const sim::OpLogFile& file);

}  // namespace coprime
