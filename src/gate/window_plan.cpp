#include "gate/window_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {

bool is_vector(GateKind kind) {
  return kind == GateKind::kEmbedding || kind == GateKind::kAttention || kind == GateKind::kFfn;
}

}  // namespace

WindowPlan::WindowPlan(const GateSchedule& schedule, const QueuePairLimits& agreed, int lookahead)
    : schedule_(schedule),
      limits_(agreed),
      lookahead_(lookahead),
      chunk_bytes_(std::min(
          {agreed.max_message_bytes, agreed.max_posted_bytes, std::max<size_t>(1, largest_slot_bytes(schedule))})) {
  COPRIME_CHECK(!schedule_.empty() && lookahead_ >= 2, "{} gates, {} ahead", schedule_.size(), lookahead_);
  if (chunk_bytes_ != 0) {
    send_messages_ = limits_.send_depth / frames(chunk_bytes_, limits_);
    bulk_window_messages_ =
        static_cast<int64_t>(std::min({static_cast<size_t>(limits_.receive_depth / frames(chunk_bytes_, limits_)),
                                       limits_.max_posted_bytes / chunk_bytes_, size_t{kBulkWindowReceives}}));
  }
  if (send_messages_ < 1 || bulk_window_messages_ < 1) {
    fail(ErrorKind::kUsage,
         "the link takes messages of {} bytes, {} sends and {} receives at a time, {} bytes of receives: not one "
         "message of {} bytes fits; use another --link",
         limits_.max_message_bytes, limits_.send_depth, limits_.receive_depth, limits_.max_posted_bytes, chunk_bytes_);
  }
  for (int i = 0; i < kWindowClasses; ++i) plan_class(static_cast<RowClass>(i));
}

void WindowPlan::plan_class(RowClass row_class) {
  Class& planned = classes_[static_cast<size_t>(row_class)];
  size_t largest = 0;
  for (const GateEntry& entry : schedule_) {
    const auto bytes = static_cast<size_t>(entry.row_bytes * std::min(class_rows(row_class), entry.max_rows));
    const size_t capacity = std::max<size_t>(1, bytes);
    planned.gates.push_back({capacity, chunk_count(capacity, chunk_bytes_)});
    largest = std::max(largest, capacity);
  }
  planned.reason = row_class == RowClass::kOne ? why_no_decode_vector() : std::string();
  if (planned.reason.empty()) planned.reason = why_not(planned, lookahead_);
  if (planned.reason.empty()) {
    planned.service = Service::kDecodeWindow;
  } else if (why_not(planned, 2).empty()) {
    planned.service = Service::kVerifyWindow;
  } else {
    return;
  }
  largest_capacity_ = std::max(largest_capacity_, largest);
}

std::string WindowPlan::why_no_decode_vector() const {
  try {
    for (const GateEntry& entry : schedule_) {
      if (is_vector(entry.kind)) decode_vector_chunks(static_cast<size_t>(entry.row_bytes), chunk_bytes_);
    }
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

// Empty if the receives of any so many consecutive gates may be posted at a time, from one step into the next ones.
std::string WindowPlan::why_not(const Class& planned, int gates) const {
  for (size_t first = 0; first < planned.gates.size(); ++first) {
    int64_t depth = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < static_cast<size_t>(gates); ++i) {
      const Gate& gate = planned.gates[(first + i) % planned.gates.size()];
      const Piece last = chunk_at(gate.capacity, chunk_bytes_, gate.chunks - 1);
      depth += (gate.chunks - 1) * frames(chunk_bytes_, limits_) + frames(last.bytes, limits_);
      if (gate.chunks > send_messages_)
        return fmt::format("a gate of {} messages exceeds the {} sends of the link", gate.chunks, send_messages_);
      if (__builtin_add_overflow(bytes, gate.capacity, &bytes)) bytes = SIZE_MAX;
    }
    if (depth > limits_.receive_depth) {
      return fmt::format("the receives of {} gates take {} of the link's depth of {}", gates, depth,
                         limits_.receive_depth);
    }
    if (bytes > limits_.max_posted_bytes) {
      return fmt::format("the receives of {} gates have {} bytes, the link takes {}", gates, bytes,
                         limits_.max_posted_bytes);
    }
  }
  return {};
}

size_t WindowPlan::dummy_bytes() const {
  return limits_.frame_bytes == 0 ? 1 : std::min(chunk_bytes_, std::max<size_t>(1, largest_capacity_));
}

}  // namespace coprime
