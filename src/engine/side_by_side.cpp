#include "engine/side_by_side.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "device/top_k.h"
#include "engine/generation.h"
#include "engine/sampler.h"

namespace coprime {
namespace {

struct Running {
  size_t request = 0;
  int64_t position = 0;  // rows that were computed
  GreedyResult result;
};

class Batch {
 public:
  Batch(Front& front, std::span<const GreedyRequest> requests, std::span<const int32_t> end_ids)
      : front_(front),
        requests_(requests),
        end_ids_(end_ids),
        places_(static_cast<size_t>(front.options().sequences)) {}

  void run(const std::function<void(size_t, const GreedyResult&)>& done) {
    while (fill_places()) {
      make_step();
      use(front_.step(step_), done);
    }
  }

 private:
  bool fill_places() {
    bool any = false;
    for (auto& place : places_) {
      if (!place && next_ < requests_.size()) place = Running{.request = next_++};
      any = any || place;
    }
    return any;
  }

  // Decode rows first, so that no sequence waits for another's prompt; what room is left goes to prompts.
  void make_step() {
    step_.sequences.clear();
    step_.ids.clear();
    in_step_.clear();
    int64_t room = front_.options().max_rows;
    for (const bool decode : {true, false}) {
      for (size_t i = 0; i < places_.size() && room > 0; ++i) {
        if (!places_[i]) continue;
        const auto prompt = static_cast<int64_t>(requests_[places_[i]->request].prompt.size());
        if ((places_[i]->position >= prompt) == decode)
          room -= add(i, decode ? 1 : std::min(room, prompt - places_[i]->position));
      }
    }
    step_.next_rows = static_cast<int32_t>(in_step_.size());
  }

  int64_t add(size_t place, int64_t rows) {
    Running& running = *places_[place];
    const std::vector<int32_t>& prompt = requests_[running.request].prompt;
    const auto length = static_cast<int64_t>(prompt.size());
    const bool decode = running.position >= length;
    step_.sequences.push_back(sequence_rows(front_, static_cast<int>(place), running.position, rows,
                                            decode ? RowsKind::kDecode : RowsKind::kPrefill));
    if (decode) {
      step_.ids.push_back(running.result.ids.back());
    } else {
      step_.ids.insert(step_.ids.end(), prompt.begin() + running.position, prompt.begin() + running.position + rows);
    }
    running.position += rows;
    if (running.position >= length) step_.sequences.back().logits = {{static_cast<int32_t>(rows - 1), 2}};
    in_step_.push_back(place);
    return rows;
  }

  void use(const std::vector<RowLogits>& rows, const std::function<void(size_t, const GreedyResult&)>& done) {
    size_t row = 0;
    for (size_t i = 0; i < in_step_.size(); ++i) {
      if (step_.sequences[i].logits.empty()) continue;
      std::optional<Running>& place = places_[in_step_[i]];
      if (!take(rows[row++], &*place)) continue;
      const Running ended = std::move(*place);
      place.reset();
      done(ended.request, ended.result);
    }
  }

  // Whether the sequence ends with this row's best token.
  bool take(const RowLogits& row, Running* running) const {
    std::vector<Candidate> best = row.best;
    std::ranges::sort(best, ranks_before);
    check_logits(best, running->position);
    running->result.margins.push_back(best.size() < 2 ? 0 : best[0].logit - best[1].logit);
    running->result.ended = std::ranges::find(end_ids_, best[0].id) != end_ids_.end();
    if (running->result.ended) return true;
    running->result.ids.push_back(best[0].id);
    return static_cast<int64_t>(running->result.ids.size()) >= requests_[running->request].max_tokens;
  }

  Front& front_;
  std::span<const GreedyRequest> requests_;
  std::span<const int32_t> end_ids_;
  std::vector<std::optional<Running>> places_;  // by the front's sequence
  size_t next_ = 0;
  StepBatch step_;
  std::vector<size_t> in_step_;  // the place of each of the step's sequences
};

}  // namespace

void generate_side_by_side(Front& front, std::span<const GreedyRequest> requests, std::span<const int32_t> end_ids,
                           const std::function<void(size_t request, const GreedyResult&)>& done) {
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto prompt = static_cast<int64_t>(requests[i].prompt.size());
    if (prompt == 0) fail(ErrorKind::kUsage, "prompt {} is empty: give at least one token", i);
    if (requests[i].max_tokens < 1 || prompt + requests[i].max_tokens > front.options().context)
      fail(ErrorKind::kUsage, "prompt {} has {} tokens and {} to come, and the context holds {}", i, prompt,
           requests[i].max_tokens, front.options().context);
  }
  Batch(front, requests, end_ids).run(done);
}

}  // namespace coprime
