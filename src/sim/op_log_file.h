// The op_log on disk: binary columns behind a header, checked when it is read.
//
//   "coprime op_log\n\0"   16 bytes
//   u32 version (1), u32 header bytes (of all that stands before the columns)
//   u64 rows, u64 hash of the columns
//   u32 bytes of the chip's text, the text; u32 bytes of the run's text, the text
//   u32 columns; each: u8 bytes of an element, u8 bytes of its name, the name
//   zeros up to a multiple of 8, then the columns, each padded to a multiple of 8
//
// All numbers are little-endian.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "sim/op_log.h"

namespace coprime::sim {

struct OpLogFile {
  std::string chip;  // chip_text() of the chip
  std::string run;   // which kernel, with what
  OpLog log;
};

// Of all columns, in order: what two runs are compared by.
uint64_t op_log_hash(const OpLog& log);

// Error(kModel) when it cannot be written.
void write_op_log(const std::filesystem::path& path, const OpLogFile& file);

// Error(kModel), with the path, for a file that is no op_log, of another version, damaged, or cut short.
OpLogFile read_op_log(const std::filesystem::path& path);

// Whether the file begins as an op_log does, of whatever version. Error(kModel) where none can be read.
bool is_op_log(const std::filesystem::path& path);

std::string_view name_of(OpKind kind);    // load, composite, max, ...
std::string_view name_of(Cause cause);    // issue, engine, data, buffer, none
std::string_view engine_of(OpKind kind);  // SCHEDULER (whole composites), DMA, GEMM, MATH, SEND, RECV

}  // namespace coprime::sim
