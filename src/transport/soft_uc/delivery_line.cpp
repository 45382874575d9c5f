#include "transport/soft_uc/delivery_line.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace coprime {
namespace {
bool is_of_messages(const SoftUcFault& fault) { return fault.kind <= SoftUcFault::Kind::kSwapMessages; }
}  // namespace

DeliveryLine::DeliveryLine(const SoftUcOptions& options, uint64_t seed) : delay_(options.delay), random_(seed) {
  std::ranges::copy_if(options.faults, std::back_inserter(faults_), is_of_messages);
  idle_ = delay_.none() && faults_.empty();
}

void DeliveryLine::put(std::span<const std::byte> payload, uint32_t tag, int64_t sent_us, int64_t time_us) {
  ++messages_;
  const int64_t left_us = std::clamp<int64_t>(sent_us, 0, time_us);  // the peer's word is not trusted
  Message message{{payload.begin(), payload.end()}, tag};
  bool dropped = false, repeated = false, swapped = false;
  for (const SoftUcFault& fault : faults_) {
    if (!fault.strikes(messages_)) continue;
    dropped |= fault.kind == SoftUcFault::Kind::kDropMessage;
    repeated |= fault.kind == SoftUcFault::Kind::kRepeatMessage;
    swapped |= fault.kind == SoftUcFault::Kind::kSwapMessages;
    if (fault.kind == SoftUcFault::Kind::kFlipByte) flip_bit(message.payload);
  }
  if (dropped) return;
  if (swapped && !swapped_) {
    swapped_ = std::move(message);
    return;
  }
  if (repeated) hold(message, left_us);
  hold(std::move(message), left_us);
  if (swapped_) hold(*std::exchange(swapped_, std::nullopt), left_us);
}

void DeliveryLine::flip_bit(std::vector<std::byte>& payload) {
  if (payload.empty()) return;
  payload[random_below(payload.size())] ^= static_cast<std::byte>(1u << random_below(8));
}

void DeliveryLine::hold(Message message, int64_t left_us) {
  const bool stalls = delay_.stall_every > 0 && messages_ % delay_.stall_every == 0;
  const int64_t jitter_us = static_cast<int64_t>(random_below(static_cast<uint64_t>(delay_.jitter_us) + 1));
  const int64_t due_us = left_us + delay_.base_us + jitter_us + (stalls ? delay_.stall_us : 0);
  held_bytes_ += message.payload.size();
  held_.push_back({std::move(message), due_us});
}

std::optional<DeliveryLine::Arrived> DeliveryLine::take(int64_t time_us) {
  if (held_.empty() || held_.front().due_us > time_us) return std::nullopt;
  taken_ = std::move(held_.front().message);
  held_.pop_front();
  held_bytes_ -= taken_.payload.size();
  return Arrived{taken_.payload, taken_.tag};
}

}  // namespace coprime
