#include "tools/sim_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/count_text.h"
#include "base/error.h"
#include "base/printable.h"
#include "sim/chip_file.h"
#include "sim/decode_model.h"
#include "tools/line_chart.h"
#include "tools/sim_knobs.h"

namespace coprime {
namespace {

using sim::Chip;
using sim::RunSpec;

constexpr size_t kMostPoints = 10'000;
constexpr std::array<std::string_view, 4> kVariants = {"opt1", "opt3", "opt3v", "opt2"};  // as tl::DecodeVariant

attention::ReduceTopology topology_of(std::string_view name, std::string_view value) {
  for (const attention::ReduceTopology topology : attention::kReduceTopologies)
    if (attention::name_of(topology) == value) return topology;
  fail(ErrorKind::kUsage, "{}: expected tree, mesh, chain, ring or star; found {}", name, printable(value));
}

tl::Kernel kernel_of(std::string_view name, std::string_view value) {
  const auto* const found =
      std::ranges::find(tl::kKernels, value, [](tl::Kernel kernel) { return tl::name_of(kernel); });
  if (found == tl::kKernels.end())
    fail(ErrorKind::kUsage, "{}: expected decode, prefill, decode-short, ...; found {}", name, printable(value));
  return *found;
}

using Set = void (*)(std::string_view name, std::string_view value, Chip& chip, RunSpec& spec);

// What can be swept besides a chip's values, and over what where nothing else is said.
struct Quantity {
  std::string_view name, values, title;
  Set set;
};

constexpr std::array<Quantity, 19> kQuantities = {{
    {"kernel", "decode,decode-short", "kernel",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) { spec.kernel = kernel_of(name, value); }},
    {"kv-per-cube", "1,2,4,8", "KV heads of a CUBE",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.kv_per_cube = static_cast<int>(sim_count(name, value, 1024));
     }},
    {"users", "1,2,4,8", "users at once",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.users = static_cast<int>(sim_count(name, value, 1024));
     }},
    {"head-dim", "64,128,256", "width of a head",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.d = sim_count(name, value, 4096);
     }},
    {"query-rows", "64,128,256,512", "rows of queries at a time",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.query_rows = sim_count(name, value, 1 << 20);
     }},
    {"query-begin", "0", "first position",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.query_begin = value == "0" ? 0 : sim_count(name, value, int64_t{1} << 30);
     }},
    {"query-end", "64K", "position behind the last",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.query_end = sim_count(name, value, int64_t{1} << 30);
     }},
    {"variant", "opt1,opt3,opt3v,opt2", "variant",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       const auto* const found = std::ranges::find(kVariants, value);
       if (found == kVariants.end())
         fail(ErrorKind::kUsage, "{}: expected opt1, opt3, opt3v or opt2; found {}", name, printable(value));
       spec.variant = static_cast<tl::DecodeVariant>(found - kVariants.begin());
     }},
    {"context", "8K,32K,128K,256K,512K,1M", "tokens",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.context = sim_count(name, value, int64_t{1} << 30);
     }},
    {"max-context", "1M", "tokens that the cache has room for",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.largest_context = sim_count(name, value, int64_t{1} << 30);
     }},
    {"cubes", "1,2,4,8,16", "CUBEs that share a KV head",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.cubes = static_cast<int>(sim_count(name, value, 1024));
     }},
    {"pes", "1,2,4,8", "PEs of a CUBE",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.pes = static_cast<int>(sim_count(name, value, 8));
     }},
    {"kv-heads", "1,2,4,8,16", "KV heads of the model",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.kv_heads = static_cast<int>(sim_count(name, value, 1024));
     }},
    {"tile", "32,64,128,256", "keys of a tile",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.tile = sim_count(name, value, 1 << 20);
     }},
    {"group", "1,2,4,8,16", "query heads of a KV head",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.rows = sim_count(name, value, 1024);
     }},
    {"topology", "tree,mesh,chain,ring,star", "topology of both levels",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.within = spec.across = topology_of(name, value);
     }},
    {"within", "tree,mesh,chain,ring,star", "topology of a CUBE's PEs",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.within = topology_of(name, value);
     }},
    {"across", "tree,mesh,chain,ring,star", "topology of a group's CUBEs",
     [](std::string_view name, std::string_view value, Chip&, RunSpec& spec) {
       spec.across = topology_of(name, value);
     }},
    {"depth", "1,2,4,8,16,32,64", "reads in flight",
     [](std::string_view name, std::string_view value, Chip& chip, RunSpec&) {
       chip.pe.dma.reads_in_flight = sim_count(name, value, 4096);
     }},
}};

const Quantity* quantity_of(std::string_view name) {
  const auto* const found = std::ranges::find(kQuantities, name, &Quantity::name);
  return found == kQuantities.end() ? nullptr : found;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// "tree" or "tree, 64" of a point's values behind the first axis.
std::string series_of(const SweepPoint& point) {
  std::string name;
  for (size_t i = 1; i < point.values.size(); ++i) name += (i > 1 ? ", " : "") + point.values[i];
  return name;
}

// Which of the lines is the fastest, or which ones are where several take as long, along the first axis: where it
// changes is a crossover.
std::string best_of(const Sweep& sweep) {
  std::string text, last, from, to;
  const auto flush = [&] {
    if (!last.empty())
      text += fmt::format("  {} {}: {}\n", sweep.axes[0].name, from == to ? from : from + " to " + to, last);
  };
  for (const std::string& x : sweep.axes[0].values) {
    sim::Tick least = ~sim::Tick{0};
    std::string best;
    for (const SweepPoint& point : sweep.points) {
      if (point.values[0] != x || !point.refusal.empty() || point.result.ticks > least) continue;
      best = (point.result.ticks == least ? best + " and " : "") + series_of(point);
      least = point.result.ticks;
    }
    if (best.empty()) continue;
    if (best != last) {
      flush();
      last = best, from = x;
    }
    to = x;
  }
  flush();
  return text;
}

}  // namespace

int64_t sim_count(std::string_view name, std::string_view value, int64_t most) {
  const auto count = parse_count(value, most);
  if (!count)
    fail(ErrorKind::kUsage, "{}: expected a number from 1 to {}, such as 64, 256K or 1M; found {}", name, most,
         printable(value));
  return *count;
}

void set_swept(std::string_view name, std::string_view value, Chip& chip, RunSpec& spec) {
  if (const Quantity* quantity = quantity_of(name)) return quantity->set(name, value, chip, spec);
  sim::set_chip_value(chip, name, value);
}

std::vector<SweepAxis> parse_sweep_axes(std::string_view text) {
  const std::vector<std::string> keys = sim::chip_keys();
  const auto is_quantity = [&](const std::string& name) {
    return quantity_of(name) || std::ranges::count(keys, name) > 0;
  };
  std::vector<SweepAxis> axes;
  for (const std::string& part : split(text)) {
    const size_t equals = part.find('=');
    const std::string name = part.substr(0, equals);
    if (equals == std::string::npos && !axes.empty() && !is_quantity(name)) {
      axes.back().values.push_back(part);
      continue;
    }
    if (!is_quantity(name))
      fail(ErrorKind::kUsage,
           "--over {}: expected kernel, variant, context, cubes, pes, tile, group, users, topology, within, across, "
           "depth, or a value of the chip such as pe.gemm.subtile_cycles",
           printable(name));
    axes.push_back({name, {}});
    if (equals != std::string::npos) axes.back().values.push_back(part.substr(equals + 1));
  }
  for (SweepAxis& axis : axes) {
    if (!axis.values.empty()) continue;
    const Quantity* quantity = quantity_of(axis.name);
    if (!quantity) fail(ErrorKind::kUsage, "--over {0}: say over which values: {0}=1,2,4", axis.name);
    axis.values = split(quantity->values);
  }
  return axes;
}

std::vector<tl::Kernel> kernels_of(const std::vector<SweepAxis>& axes, tl::Kernel kernel) {
  const auto axis = std::ranges::find(axes, "kernel", &SweepAxis::name);
  if (axis == axes.end()) return {kernel};
  std::vector<tl::Kernel> kernels;
  for (const std::string& value : axis->values) kernels.push_back(kernel_of("kernel", value));
  return kernels;
}

Sweep run_sweep(const Chip& chip, const RunSpec& spec, std::vector<SweepAxis> axes,
                const std::function<void(size_t run, size_t runs)>& progress) {
  const std::vector<tl::Kernel> kernels = kernels_of(axes, spec.kernel);
  size_t points = axes.empty() ? 0 : 1;
  for (const SweepAxis& axis : axes) {
    const Quantity* quantity = quantity_of(axis.name);
    if (quantity && axis.name != "kernel" && axis.name != "depth") check_knob(kernels, axis.name, "");
    for (const std::string& value : axis.values) {
      Chip with = chip;
      RunSpec run = spec;
      set_swept(axis.name, value, with, run);
    }
    points = std::min(points * axis.values.size(), kMostPoints + 1);
  }
  if (points == 0 || points > kMostPoints)
    fail(ErrorKind::kUsage, "--over: {}; expected 1 to {} runs", points == 0 ? "no quantity" : "too many values",
         kMostPoints);

  Sweep sweep{kernels.size() > 1 ? "kernels" : std::string(tl::name_of(kernels.front())), std::move(axes), {}};
  for (size_t i = 0; i < points; ++i) {
    SweepPoint& point = sweep.points.emplace_back();
    point.values.resize(sweep.axes.size());
    Chip with = chip;
    RunSpec run = spec;
    if (progress) run.progress = [&, i](sim::Tick, uint64_t) { progress(i, points); };
    size_t rest = i;
    for (size_t axis = sweep.axes.size(); axis-- > 0;) {
      const auto& values = sweep.axes[axis].values;
      point.values[axis] = values[rest % values.size()];
      rest /= values.size();
    }
    for (size_t axis = 0; axis < sweep.axes.size(); ++axis)
      set_swept(sweep.axes[axis].name, point.values[axis], with, run);
    try {
      sim::check_chip(with);
      point.result = sim::run(with, run);
      if (run.kernel == tl::Kernel::kDecode)
        point.estimate = sim::decode_estimate(with, run) * static_cast<sim::Tick>(point.result.launches);
    } catch (const Error& error) {
      point.refusal = error.what();
    }
  }
  return sweep;
}

void check_any_ran(const Sweep& sweep) {
  if (std::ranges::any_of(sweep.points, [](const SweepPoint& point) { return point.refusal.empty(); })) return;
  std::string why;
  std::string last;
  for (const SweepPoint& point : sweep.points) {
    if (std::exchange(last, point.refusal) == point.refusal) continue;
    std::string at;
    for (size_t axis = 0; axis < sweep.axes.size(); ++axis)
      at += fmt::format("{}{} {}", at.empty() ? "" : ", ", sweep.axes[axis].name, point.values[axis]);
    why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", at, point.refusal);
  }
  fail(ErrorKind::kUsage, "none of the {} runs could be done: {}", sweep.points.size(), why);
}

std::string sweep_table(const Sweep& sweep) {
  std::string table;
  for (const SweepAxis& axis : sweep.axes) table += fmt::format("{:<10} ", axis.name);
  table +=
      fmt::format("{:>12} {:>12} {:>7} {:>8} {:>7} {:>7}\n", "us", "formula us", "bound", "of time", "rounds", "sends");
  for (const SweepPoint& point : sweep.points) {
    for (const std::string& value : point.values) table += fmt::format("{:<10} ", value);
    if (!point.refusal.empty()) {
      table += point.refusal + "\n";
      continue;
    }
    const sim::RunResult& result = point.result;
    const sim::Bound& bound = result.bounds.front();
    const std::string estimate = point.estimate > 0 ? fmt::format("{:.3f}", sim::microseconds(point.estimate)) : "-";
    table += fmt::format(
        "{:>12.3f} {:>12} {:>7} {:>7.1f}% {:>7} {:>7}\n", sim::microseconds(result.ticks), estimate, bound.resource,
        100 * sim::microseconds(bound.ticks) / sim::microseconds(result.totals.end.time), result.rounds, result.sends);
  }
  const auto refused = std::ranges::count_if(sweep.points, [](const SweepPoint& p) { return !p.refusal.empty(); });
  if (refused > 0) table += fmt::format("{} of {} runs could not be done\n", refused, sweep.points.size());
  if (sweep.axes.size() > 1) table += "fastest\n" + best_of(sweep);
  return table;
}

std::string sweep_svg(const Sweep& sweep, std::string_view subtitle) {
  const SweepAxis& along = sweep.axes[0];
  const Quantity* quantity = quantity_of(along.name);
  const bool numbers =
      std::ranges::all_of(along.values, [](const std::string& v) { return parse_count(v, kMostSimCount).has_value(); });
  std::vector<std::string> order;
  std::map<std::string, std::pair<ChartSeries, ChartSeries>> lines;  // simulated, formula
  for (const SweepPoint& point : sweep.points) {
    const std::string name = series_of(point);
    if (!lines.contains(name)) order.push_back(name);
    auto& [simulated, formula] = lines[name];
    simulated.name = name.empty() ? "simulated" : name;
    formula.name = name.empty() ? "formula" : name + ", formula";
    formula.formula = true;
    if (!point.refusal.empty()) continue;
    const auto place = static_cast<double>(std::ranges::find(along.values, point.values[0]) - along.values.begin());
    const double x = numbers ? static_cast<double>(*parse_count(point.values[0], kMostSimCount)) : place;
    simulated.points.emplace_back(x, sim::microseconds(point.result.ticks));
    if (point.estimate > 0) formula.points.emplace_back(x, sim::microseconds(point.estimate));
  }
  Chart chart{.title = fmt::format("{} over {}", sweep.kernel, along.name),
              .subtitle = std::string(subtitle),
              .x_title = std::string(quantity ? quantity->title : along.name),
              .y_title = "us",
              .x = numbers ? ChartAxis::kPowersOfTwo : ChartAxis::kNames,
              .y = ChartAxis::kPowersOfTwo,
              .names = along.values,
              .series = {}};
  for (const std::string& name : order) {
    chart.series.push_back(lines[name].first);
    if (!lines[name].second.points.empty()) chart.series.push_back(lines[name].second);
  }
  return chart_svg(chart);
}

}  // namespace coprime
