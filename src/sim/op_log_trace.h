// An op_log as a trace for ui.perfetto.dev: a track for each engine of each PE, within its CUBE and SIP; a second and
// third where an engine has several operations under way (reads in flight); an arrow from each send to the receive
// that waited for it. Slices are placed to the nanosecond and carry their picoseconds.
#pragma once

#include <filesystem>

#include "sim/op_log.h"

namespace coprime::sim {

// Error(kModel) when it cannot be written.
void write_op_log_trace(const std::filesystem::path& path, const Chip& chip, const OpLog& log);

// Whether that wrote the file: it begins with the track of a SIP.
bool is_op_log_trace(const std::filesystem::path& path);

}  // namespace coprime::sim
