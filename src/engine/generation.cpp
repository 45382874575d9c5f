#include "engine/generation.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"

namespace coprime {

SequenceRows sequence_rows(const Front& front, int sequence, int64_t start, int64_t rows, RowsKind kind) {
  SequenceRows result{.sequence = sequence,
                      .kind = kind,
                      .start = start,
                      .rows = static_cast<int32_t>(rows),
                      .state_in = start == 0 ? -1 : sequence,
                      .state_out = sequence};
  if (start == 0) {
    for (int page = 0; page < front.pages_per_sequence(); ++page) {
      result.pages.pages.push_back(sequence * front.pages_per_sequence() + page);
    }
  } else {
    result.pages.first = front.pages_per_sequence();  // nothing new
  }
  return result;
}

Generation generate(Front& front, const GenerationRequest& request, const std::function<bool(int32_t)>& on_token) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t context = front.options().context;
  if (prompt == 0) fail(ErrorKind::kUsage, "the prompt is empty: give at least one token");
  if (prompt >= context) {
    fail(ErrorKind::kUsage, "the prompt has {} tokens, and the context holds {} with at least one to come: shorten it",
         prompt, context);
  }

  Generation generation;
  const int64_t begin_us = now_us(), chunk = front.options().max_rows;
  const LogitsRequest wanted_last{0, candidates_needed(request.sampling)};
  // The first decode step may still arm windows and fault pages; the second is a steady one.
  const int64_t traced_decode_step = std::min<int64_t>(1, request.max_tokens - 2);
  int64_t decode_step = 0;
  StepBatch batch;
  batch.sequences.resize(1);
  for (int64_t position = 0;;) {
    if (request.cancelled && request.cancelled()) {
      if (position > 0) front.cancel(0);
      generation.finish = Finish::kCancelled;
      return generation;
    }
    const bool prefill = position < prompt;
    const int64_t rows = prefill ? std::min(chunk, prompt - position) : 1;
    batch.sequences[0] = sequence_rows(front, 0, position, rows, prefill ? RowsKind::kPrefill : RowsKind::kDecode);
    if (prefill) {
      batch.ids.assign(request.prompt.begin() + position, request.prompt.begin() + position + rows);
    } else {
      batch.ids.assign(1, generation.ids.back());
    }
    position += rows;
    batch.next_rows = static_cast<int32_t>(position < prompt ? std::min(chunk, prompt - position) : 1);
    if (position >= prompt) {
      batch.sequences[0].logits = {wanted_last};
      batch.sequences[0].logits[0].row = static_cast<int32_t>(rows - 1);
    }
    batch.trace = request.trace && (prefill ? position == rows : decode_step++ == traced_decode_step);
    const auto& logits = front.step(batch);
    if (batch.trace) {
      generation.traces.push_back(front.trace());
      generation.traces.back().name = prefill ? fmt::format("prefill of {} rows", rows) : "decode";
    }
    if (prefill && request.read) request.read(position);
    if (position < prompt) continue;

    std::vector<Candidate> candidates = logits[0].best;
    for (size_t id = 0; id < logits[0].all.size(); ++id)
      candidates.push_back({logits[0].all[id], static_cast<int32_t>(id)});
    check_logits(candidates, position);
    const int32_t id = sample(candidates, request.sampling, static_cast<uint64_t>(position - prompt));
    if (generation.first_token_us == 0) {
      generation.first_token_us = now_us() - begin_us;
    } else {
      ++generation.decode_steps;
      generation.decode_us = now_us() - begin_us - generation.first_token_us;
    }
    if (std::ranges::find(request.eos, id) != request.eos.end()) {
      generation.finish = Finish::kStop;
      return generation;
    }
    generation.ids.push_back(id);
    if (on_token && !on_token(id)) {
      generation.finish = Finish::kStop;
      return generation;
    }
    if (static_cast<int64_t>(generation.ids.size()) >= request.max_tokens || position >= context) return generation;
  }
}

std::vector<float> teacher_forced_logits(Front& front, std::span<const int32_t> ids, int64_t batch, int64_t length) {
  const int64_t vocab = front.plan().shape().vocab, context = front.options().context;
  if (length < 1 || batch < 1)
    fail(ErrorKind::kUsage, "ids of shape [{}, {}]: at least one row of one token is needed", batch, length);
  if (length > context)
    fail(ErrorKind::kUsage, "rows of {} tokens, and the context holds {}: shorten them", length, context);
  std::vector<float> out(static_cast<size_t>(batch * length * vocab));

  const int64_t group = std::min<int64_t>({batch, front.options().sequences, front.options().max_rows});
  const int64_t chunk = front.options().max_rows / group;
  StepBatch step;
  for (int64_t first = 0; first < batch; first += group) {
    const int64_t sequences = std::min(group, batch - first);
    for (int64_t start = 0; start < length; start += chunk) {
      const int64_t rows = std::min(chunk, length - start);
      step.sequences.clear();
      step.ids.clear();
      for (int64_t s = 0; s < sequences; ++s) {
        step.sequences.push_back(sequence_rows(front, static_cast<int>(s), start, rows, RowsKind::kPrefill));
        for (int32_t row = 0; row < rows; ++row) step.sequences.back().logits.push_back({row, 0});
        const auto from = ids.begin() + (first + s) * length + start;
        step.ids.insert(step.ids.end(), from, from + rows);
      }
      const int64_t left = length - start - rows;
      step.next_rows = static_cast<int32_t>(step.rows());
      if (left > 0) step.next_rows = static_cast<int32_t>(sequences * std::min(chunk, left));
      const auto& logits = front.step(step);
      for (size_t i = 0; i < logits.size(); ++i) {
        const auto s = static_cast<int64_t>(i) / rows, row = static_cast<int64_t>(i) % rows;
        std::ranges::copy(logits[i].all, out.begin() + ((first + s) * length + start + row) * vocab);
      }
    }
  }
  return out;
}

}  // namespace coprime
