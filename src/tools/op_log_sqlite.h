// An op_log as a SQLite database, for questions in SQL: docs/simulator.md has some.
//
//   op(op, kind, pe, line, start_ps, end_ps, bytes, macs, cause, cause_op)   numbers, as in the op_log
//   kind(id, name, engine), cause(id, name)                                  what they are called
//   ops                                                                      a view of op with names and duration
//   run(key, value)                                                          the chip, the run, the hash
#pragma once

#include <filesystem>
#include <functional>

#include "sim/op_log_file.h"

namespace coprime {

// Writes the whole file or nothing. Error(kModel) when it cannot be written. progress: called now and then, with how
// many rows are written of how many; what it throws ends the writing, and nothing is left behind.
void write_op_log_sqlite(const std::filesystem::path& path, const sim::OpLogFile& file,
                         const std::function<void(size_t row, size_t rows)>& progress = {});

// Whether that wrote the file: a database says whose it is in its header.
bool is_op_log_sqlite(const std::filesystem::path& path);

}  // namespace coprime
