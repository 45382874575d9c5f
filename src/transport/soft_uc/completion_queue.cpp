#include "transport/soft_uc/completion_queue.h"

#include <algorithm>

#include "transport/soft_uc/status.h"

namespace coprime {

SoftCompletionQueue::SoftCompletionQueue(const SoftUcOptions& options) : holds_(options.completion_queue_holds) {
  for (const SoftUcFault& fault : options.faults) {
    if (fault.kind >= SoftUcFault::Kind::kDuplicateCompletion) faults_.push_back(fault);
  }
}

bool SoftCompletionQueue::push(const Entry& entry, uint64_t newest_id) {
  const Completion& told = entry.completion;
  const uint64_t number = ++seen_[static_cast<int>(told.kind)];
  Entry faulty = entry;
  bool lost = false, twice = false;
  for (const SoftUcFault& fault : faults_) {
    if (fault.of != told.kind || !fault.strikes(number)) continue;
    switch (fault.kind) {
      case SoftUcFault::Kind::kDuplicateCompletion:
        twice = true;
        break;
      case SoftUcFault::Kind::kLoseCompletion:
        lost = true;
        break;
      case SoftUcFault::Kind::kWrongId:
        faulty.completion.id = newest_id != told.id ? newest_id : told.id - 1;
        break;
      case SoftUcFault::Kind::kUnknownId:
        faulty.completion.id = told.id ^ 0x5a5a'0000'0000'0000;
        break;
      case SoftUcFault::Kind::kWrongLength:
        faulty.completion.bytes = told.bytes > 0 ? told.bytes - 1 : 1;
        break;
      case SoftUcFault::Kind::kBadStatus:
        faulty.completion.status = kSoftUcGeneralError;
        break;
      default:  // of messages: not among these
        break;
    }
  }
  if (lost || entries_.size() >= holds_) return false;
  entries_.push_back(faulty);
  if (twice && entries_.size() < holds_) entries_.push_back({faulty.completion, 0});
  return true;
}

SoftCompletionQueue::Entry SoftCompletionQueue::pop() {
  const Entry entry = entries_.front();
  entries_.pop_front();
  return entry;
}

}  // namespace coprime
