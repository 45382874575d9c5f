#include "trace/event_ring.h"

#include <algorithm>

#include "base/check.h"

namespace coprime {

EventRing::EventRing(size_t capacity) : events_(capacity) { COPRIME_CHECK(capacity > 0); }

uint64_t EventRing::overwritten() const { return recorded_ > events_.size() ? recorded_ - events_.size() : 0; }

void EventRing::copy_to(std::vector<TraceEvent>& into) const {
  into.clear();
  for (uint64_t i = overwritten(); i < recorded_; ++i) into.push_back(events_[i % events_.size()]);
}

}  // namespace coprime
