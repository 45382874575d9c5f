// One simulation after another over the values of a few quantities: which group size, tile, depth or topology, and
// where one choice overtakes another. As a table, and as a chart with the closed form beside what was simulated.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/run.h"

namespace coprime {

// What a sweep goes over. Quantities of the run: those of sim_knobs.h, kernel, topology (of both levels); of the chip:
// depth (reads in flight), and any key of its file (pe.gemm.subtile_cycles).
struct SweepAxis {
  std::string name;
  std::vector<std::string> values;
};

// Names behind each other, with usual values or with these: "cubes=1,2,4,topology". Error(kUsage) for what cannot be
// swept, or has no usual values.
std::vector<SweepAxis> parse_sweep_axes(std::string_view text);

// That run: those of the axis "kernel", else this one.
std::vector<tl::Kernel> kernels_of(const std::vector<SweepAxis>& axes, tl::Kernel kernel);

struct SweepPoint {
  std::vector<std::string> values;  // by axis
  sim::RunResult result;
  sim::Tick estimate = 0;  // of decode: sim/decode_model.h
  std::string refusal;     // why this combination cannot run; empty: it ran
};

struct Sweep {
  std::string kernel;
  std::vector<SweepAxis> axes;
  std::vector<SweepPoint> points;  // all combinations, the last axis fastest
};

// Error(kUsage) for a value that the quantity cannot have, and for a quantity that no kernel takes. A combination that
// cannot be placed is a point with its refusal. progress: called now and then, with what is done of how many.
Sweep run_sweep(const sim::Chip& chip, const sim::RunSpec& spec, std::vector<SweepAxis> axes,
                const std::function<void(size_t run, size_t runs)>& progress = {});
// Error(kUsage) if no run of it could be done, saying why each could not.
void check_any_ran(const Sweep& sweep);

inline constexpr int64_t kMostSimCount = int64_t{1} << 30;

// A number with K or M for 2^10 or 2^20. Error(kUsage), naming `name`, for anything else and for more than `most`.
int64_t sim_count(std::string_view name, std::string_view value, int64_t most = kMostSimCount);

// A run with one quantity set, as a sweep does it.
void set_swept(std::string_view name, std::string_view value, sim::Chip& chip, sim::RunSpec& spec);

std::string sweep_table(const Sweep& sweep);
// The first axis along x; a line for each combination of the others.
std::string sweep_svg(const Sweep& sweep, std::string_view subtitle);

}  // namespace coprime
