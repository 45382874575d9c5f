// What one step computes: rows of many sequences, prefill and decode mixed, and which rows' logits are wanted. The
// front makes it; every rank gets the same bytes. Its wire form is versioned and bounded, and decoding believes
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "trace/event_ring.h"

namespace coprime {

enum class RowsKind : uint8_t { kPrefill, kDecode };

struct LogitsRequest {
  int32_t row = 0;    // of the sequence's rows in this step
  int32_t top_k = 0;  // the best of each rank's shard; 0: the whole shard
};

// A sequence's page list from index `first` on.
struct PageDelta {
  int32_t first = 0;
  std::vector<int32_t> pages;
};

struct SequenceRows {
  int32_t sequence = 0;  // index of its page list
  RowsKind kind = RowsKind::kPrefill;
  int64_t start = 0;  // absolute position of the first row
  int32_t rows = 0;
  PageDelta pages;
  int32_t state_in = -1, state_out = -1;
  std::vector<LogitsRequest> logits;
};

struct StepBatch {
  uint64_t step = 0;
  int32_t next_rows = 1;  // that the step after it is expected to have: receives of its gates may be posted already
  bool trace = false;     // the ranks return what they did when
  std::vector<SequenceRows> sequences;
  std::vector<int32_t> ids;  // of all rows, sequence after sequence
  // Sequences given up since the last step: before anything else every rank forgets them, at the same edge of two
  // steps.
  std::vector<int32_t> cancelled;

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
};

// One requested row of one rank's vocabulary shard: candidates, or all of the shard's logits.
struct ShardLogits {
  std::vector<Candidate> best;
  std::vector<float> all;
};

struct StepResult {
  uint64_t step = 0;
  std::vector<ShardLogits> rows;  // in the order of the requests
  std::vector<uint64_t> gate_hashes;
  int64_t compute_us = 0, gate_us = 0;
  RecordedStep recorded;  // of a step to be traced
};

// Error(kInternal) for bytes that are no such message, or that exceed the bounds.
std::vector<std::byte> encode(const StepBatch& batch);
StepBatch decode_step_batch(std::span<const std::byte> bytes);
void encode(const StepResult& result, std::vector<std::byte>& into);
StepResult decode_step_result(std::span<const std::byte> bytes);

}  // namespace coprime
