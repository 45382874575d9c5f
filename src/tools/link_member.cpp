#include "tools/link_member.h"

#include <optional>

#include "base/error.h"
#include "engine/rank_links.h"
#include "tools/link_trial.h"
#include "transport/host_identity.h"
#include "transport/memory_limit.h"
#include "transport/wait_policy.h"

namespace coprime {
namespace {

// How much longer than a gate the bare exchange may stand still: a peer that copies a long vector moves nothing.
constexpr int kBarePatienceMs = 5000;

void check_memory(const LinkTrial& trial, int members_on_host) {
  // Slots and the floor's, two of each, and a rank's own vectors.
  const int64_t vectors = members_on_host * (4 + 2 * kStreamPushes), available = available_memory_bytes();
  if (trial.bytes < available / vectors) return;
  fail(ErrorKind::kUsage,
       "vectors of {} bytes take {} MiB on a host with {} rank{}, {} MiB are available: leave out "
       "large --sizes",
       trial.bytes, (trial.bytes >> 10) * vectors >> 10, members_on_host, members_on_host == 1 ? "" : "s",
       available >> 20);
}

class LinkMember {
 public:
  LinkMember(FrontLine& front, const LinkStart& start, std::shared_ptr<const ProgressPage> progress,
             const RankPlacement& placement)
      : front_(front), start_(start), progress_(std::move(progress)), placement_(placement), links_(start, placement) {
    front_.send_json(MessageType::kFacts, RankFacts{.host = host_identity(),
                                                    .port = links_.port(),
                                                    .no_verbs = links_.no_verbs(),
                                                    .no_ucx = links_.no_ucx(),
                                                    .cores = usable_cores()});
  }

  // Until the front ends it.
  [[noreturn]] void serve() {
    while (true) {
      const Message message = front_.receive();
      switch (static_cast<MessageType>(message.type)) {
        case MessageType::kTrial:
          trial_ = link_trial_from_json(message_text(message));
          break;
        case MessageType::kGroup:
          make_links(from_json<RankGroup>(message_text(message)));
          break;
        case MessageType::kBeginTrial:
          run_trial();
          break;
        default:
          fail(ErrorKind::kInternal, "expected a trial, found a message of type {}", message.type);
      }
    }
  }

 private:
  // They live until the next ones are made: a peer may still be reading what was sent last.
  void drop_links() {
    bare_.reset();
    exchange_.reset();
  }

  void make_links(const RankGroup& group) {
    drop_links();
    epoch_ = group.epoch;
    try {
      check_memory(trial_, group.ranks_on_host);
      exchange_ = links_.make(front_, group, link_schedule(trial_), progress_);
      progress_->advance(start_.rank);
      if (trial_.kind == LinkTrial::Kind::kGate) make_bare(usable_cores() >= group.ranks_on_host);
    } catch (const std::exception& error) {
      drop_links();
      // The front may have given this trial up already, and asks for the next one.
      if (!front_.has_unexpected()) tell_of(failure_of(error));
      return;
    }
    links_.tell(front_, *exchange_);
  }

  void make_bare(bool own_core) {
    const auto bytes = static_cast<size_t>(trial_.bytes);
    auto parts = links_.make_bare(front_, bytes);
    if (!parts) return;
    BareLinks links{start_.rank, start_.ranks, std::move(parts->region), std::move(parts->region_ranks),
                    std::move(parts->sockets)};
    bare_.emplace(std::move(links), bytes, own_core, [this](int64_t still_us) { watch_bare(still_us); });
  }

  void watch_bare(int64_t still_us) {
    if (still_us == 0) return progress_->advance(start_.rank);
    for (const int member : trial_.members) {
      if (progress_->is_gone(member))
        fail(ErrorKind::kLink, "rank {} lost rank {} in the bare exchange", start_.rank, member);
    }
    if (const auto culprit = progress_->verdict(epoch_)) {
      fail(ErrorKind::kLink, "rank {} left the bare exchange: rank {} gave up on rank {} first", start_.rank,
           culprit->origin, culprit->blamed);
    }
    const int patience_ms = start_.gate_timeout_ms + kBarePatienceMs;
    if (still_us > int64_t{patience_ms} * 1000) {
      fail(ErrorKind::kLink, "rank {} waited {} ms in the bare exchange: a rank is stopped, stuck or gone", start_.rank,
           patience_ms);
    }
  }

  void run_trial() {
    TrialReport report;
    try {
      if (!exchange_) fail(ErrorKind::kInternal, "a trial begins without links");
      report = run_link_trial(trial_, {*exchange_, *progress_, bare_ ? &*bare_ : nullptr, start_.gate_timeout_ms});
    } catch (const std::exception& error) {
      report.failure = failure_of(error).text;
    }
    if (!report.failure.empty()) {
      // The others need not wait for a member that stops. If somebody is blamed already, that stands.
      progress_->settle(epoch_, start_.rank, start_.rank);
      drop_links();
      if (placement_.report) placement_.report("a trial failed: " + report.failure);
    }
    const std::string text = to_json(report);
    front_.send(MessageType::kTrialReport, std::as_bytes(std::span(text)));
  }

  void tell_of(const RankFailure& failure) {
    if (placement_.report) placement_.report("links could not be made: " + failure.text);
    front_.send_json(MessageType::kStepFailed, failure);
  }

  FrontLine& front_;
  const LinkStart start_;
  const std::shared_ptr<const ProgressPage> progress_;
  const RankPlacement& placement_;
  RankLinks links_;
  LinkTrial trial_;
  uint32_t epoch_ = 0;
  std::unique_ptr<Exchange> exchange_;
  std::optional<BareExchange> bare_;
};

}  // namespace

void serve_link_trials(FrontLine& front, const Message& start, std::shared_ptr<const ProgressPage> progress,
                       const RankPlacement& placement) {
  LinkMember(front, from_json<LinkStart>(message_text(start)), std::move(progress), placement).serve();
}

}  // namespace coprime
