// The front's loops over a world: generating a continuation, and teacher-forced logits.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/front.h"
#include "engine/sampler.h"

namespace coprime {

enum class Finish : uint8_t { kStop, kLength, kCancelled };

struct GenerationRequest {
  std::vector<int32_t> prompt;
  int64_t max_tokens = 0;
  SamplingOptions sampling;
  std::vector<int32_t> eos;         // ids that end the text; not part of it
  std::function<bool()> cancelled;  // asked before each step; may be empty
  std::function<void(int64_t tokens)>
      read;            // told how many of the prompt's have been read, after each step of it; may be empty
  bool trace = false;  // the first step, and the second of decode (the first where the text has no second)
};

struct Generation {
  std::vector<int32_t> ids;  // without the end's id
  Finish finish = Finish::kLength;
  int64_t first_token_us = 0;  // from the request to the first sampled token
  int64_t decode_us = 0;       // of the steps after it
  int64_t decode_steps = 0;
  std::vector<StepTrace> traces;
};

// One sequence's rows of a step, the first of them at position `start`. The sequence's pages are a fixed run of the
// pool, given with its first rows; its state stays in one slot.
SequenceRows sequence_rows(const Front& front, int sequence, int64_t start, int64_t rows, RowsKind kind);

// Error(kUsage) for an empty prompt, or one that leaves no room in `front`'s context. `on_token` returns false to end
// the text (a stop string).
Generation generate(Front& front, const GenerationRequest& request, const std::function<bool(int32_t)>& on_token = {});

// Logits [batch][length][vocab] of the ids [batch][length]: at each position of the next token. Sequences are computed
// side by side, as many as the front has room for. Error(kUsage) for no ids, or more in a row than the context holds.
std::vector<float> teacher_forced_logits(Front& front, std::span<const int32_t> ids, int64_t batch, int64_t length);

}  // namespace coprime
