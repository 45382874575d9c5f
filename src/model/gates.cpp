#include "model/gates.h"

#include <algorithm>

namespace coprime {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

int64_t widest(std::span<const GatherPart> parts) {
  int64_t count = 1;  // a slot is never empty
  for (const GatherPart& part : parts) count = std::max(count, part.count);
  return count;
}

// The widest local input of a projection, dummies included: what a rank writes into its slot.
int64_t widest_input(const ShardPlan& plan, bool attention, LayerKind kind) {
  int64_t count = 1;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const Counts local = plan.local(rank);
    const int64_t width = !attention ? local.intermediate
                          : kind == LayerKind::kFullAttention
                              ? int64_t{local.q_heads} * plan.shape().head_dim
                              : int64_t{local.linear_value_heads} * plan.shape().linear.value_dim;
    count = std::max(count, width);
  }
  return count;
}

}  // namespace

std::vector<GatherPart> gather_parts(const ShardPlan& plan, Span (ShardPlan::*span)(int) const) {
  std::vector<GatherPart> parts;
  for (int rank = 0; rank < plan.ranks(); ++rank) {
    const Span s = (plan.*span)(rank);
    parts.push_back({s.global, s.count});
  }
  return parts;
}

GateSchedule make_decode_schedule(const ShardPlan& plan, int max_rows) {
  const int64_t hidden_bytes = plan.shape().hidden * kFloatBytes;
  const int64_t output_bytes = widest(gather_parts(plan, &ShardPlan::hidden_rows)) * kFloatBytes;
  GateSchedule schedule{{GateKind::kEmbedding, -1, hidden_bytes, max_rows}};
  for (int layer = 0; layer < plan.shape().layers; ++layer) {
    if (!plan.options().exact) {
      schedule.push_back({GateKind::kAttention, layer, hidden_bytes, max_rows});
      schedule.push_back({GateKind::kFfn, layer, hidden_bytes, max_rows});
      continue;
    }
    const LayerKind kind = plan.shape().layer_kinds[static_cast<size_t>(layer)];
    schedule.push_back({GateKind::kAttentionInput, layer, widest_input(plan, true, kind) * kFloatBytes, max_rows});
    schedule.push_back({GateKind::kAttentionOutput, layer, output_bytes, max_rows});
    schedule.push_back({GateKind::kFfnInput, layer, widest_input(plan, false, kind) * kFloatBytes, max_rows});
    schedule.push_back({GateKind::kFfnOutput, layer, output_bytes, max_rows});
  }
  return schedule;
}

OutputProjection::OutputProjection(const ShardPlan& plan, bool attention, int layer, std::vector<GatherPart> inputs)
    : exact_(plan.options().exact), inputs_(std::move(inputs)) {
  const int per_projection = exact_ ? 2 : 1;
  first_entry_ = 1 + (2 * layer + (attention ? 0 : 1)) * per_projection;
  if (exact_) outputs_ = gather_parts(plan, &ShardPlan::hidden_rows);
}

View OutputProjection::input(Communicator& communicator, View scratch, int rows, int64_t columns) const {
  return exact_ ? communicator.slot(first_entry_, rows).column_range(0, columns)
                : make_view(scratch.data, rows, columns);
}

void OutputProjection::run(Device& device, Communicator& communicator, const Weight& weight, View input, View gathered,
                           View sum, const Epilogue& epilogue) const {
  const auto rows = static_cast<int>(input.rows);
  if (!exact_) {
    const LinearTask task{&weight, communicator.slot(first_entry_, rows)};
    device.linear(input, {&task, 1});
    communicator.reduce(first_entry_, rows, epilogue);
    return;
  }
  const View whole_input = make_view(gathered.data, rows, weight.input_columns());
  communicator.all_gather(first_entry_, rows, inputs_, whole_input);
  const LinearTask task{&weight, communicator.slot(first_entry_ + 1, rows).column_range(0, weight.rows)};
  device.linear(whole_input, {&task, 1});
  const View whole_output = make_view(sum.data, rows, epilogue.residual.columns);
  communicator.all_gather(first_entry_ + 1, rows, outputs_, whole_output, &epilogue);
}

}  // namespace coprime
