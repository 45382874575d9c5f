// coprime link: measures the links of a world, whose ranks run on this host and on others, and prints tables or one
// JSON object; with --gpu, what joins this host's GPUs. Figures of transfers that failed or came out wrong are printed,
// too, before the error.
#include "tools/link.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "cli/byte_count.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "geometry/shard_plan.h"
#include "model/gates.h"
#include "tools/gpu_link.h"

namespace coprime {
namespace {

constexpr int64_t kLargestBytes = int64_t{1} << 30;

int64_t parse_size(const std::string& text) {
  const int64_t bytes = parse_bytes("--sizes", text, kLargestBytes);
  if (bytes % 4 != 0) fail(ErrorKind::kUsage, "--sizes: {} is no multiple of 4 bytes: vectors are of floats", text);
  return bytes;
}

// Ascending, each once; with the model's.
std::vector<int64_t> sizes_of(const LinkSettings& settings, const GateSchedule& schedule) {
  std::set<int64_t> sizes;
  for (const std::string& text : settings.sizes) sizes.insert(parse_size(text));
  if (sizes.empty()) {
    for (const int64_t bytes : default_link_sizes()) sizes.insert(bytes);
  }
  for (const GateEntry& entry : schedule) sizes.insert(entry.row_bytes);
  return {sizes.begin(), sizes.end()};
}

void run_gpu_link(const LinkSettings& settings) {
  const GpuLinkFigures figures = measure_gpu_links({.ranks = settings.ranks.ranks.value_or(0)});
  print(settings.json ? gpu_link_json(figures) + "\n" : gpu_link_text(figures));
}

}  // namespace

void run_link(const LinkSettings& settings) {
  if (settings.gpu) return run_gpu_link(settings);
  const RemoteOptions remote = settings.ranks.remote_options();
  const int ranks = settings.ranks.count(remote, 2);
  if (ranks < 2) fail(ErrorKind::kUsage, "one rank has no links: give --ranks 2 or more");
  GateSchedule schedule;
  if (!settings.model.empty()) {
    const ShardPlan plan(read_model_shape(settings.model), {.ranks = ranks, .exact = settings.exact});
    schedule = make_decode_schedule(plan, 1);
  }
  const MeasureOptions options{.sizes = sizes_of(settings, schedule), .repeat = settings.repeat};
  RankedLinkWorld world({.ranks = ranks,
                         .wish = settings.ranks.wish(),
                         .timeout_ms = settings.ranks.gate_timeout_ms,
                         .port = settings.ranks.port,
                         .wire_auth = settings.ranks.wire_auth,
                         .verbs = settings.ranks.verbs,
                         .remote = remote,
                         .report = print_report});
  const LinkFigures figures = measure_links(world, options);
  std::optional<TokenCost> token;
  if (!schedule.empty() && figures.failures.empty()) token = token_cost(figures, schedule);
  const std::string text = settings.json ? link_json(figures, token) + "\n" : link_text(figures, token);
  print(text);
  if (figures.wrong > 0) {
    fail(ErrorKind::kLink, "{} of {} vectors came out wrong: use no engine over this link", figures.wrong,
         figures.transfers);
  }
  if (!figures.good()) fail(ErrorKind::kLink, "{}", figures.failures[0]);
}

}  // namespace coprime
