#include "net/relay.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/clock.h"

namespace coprime {
namespace {

constexpr size_t kMostQueued = 16384;  // packets of a way
constexpr size_t kMostPacket = 65536;  // bytes
constexpr int kPacketsAtOnce = 64;     // of one card, before the others have their turn
constexpr size_t kDestination = 16;    // where an IPv4 header has the address
constexpr size_t kIpHeader = 20;

}  // namespace

Relay::Relay(std::vector<int> cards)
    : cards_(std::move(cards)), queues_(cards_.size() * cards_.size()), wake_(::eventfd(0, EFD_CLOEXEC)) {
  COPRIME_CHECK(wake_.get() >= 0);
  for (size_t i = 0; i < queues_.size(); ++i) ways_.push_back(std::make_unique<Way>());
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  const uint64_t one = 1;
  COPRIME_CHECK(::write(wake_.get(), &one, sizeof one) == sizeof one);
  thread_.join();
}

void Relay::run() {
  std::vector<pollfd> wanted;
  for (const int card : cards_) wanted.push_back({card, POLLIN, 0});
  wanted.push_back({wake_.get(), POLLIN, 0});
  while (wanted.back().revents == 0) {
    const int64_t next_us = deliver_due();
    const int64_t left_us = std::max<int64_t>(next_us - now_us(), 0);
    const timespec timeout = {.tv_sec = left_us / 1'000'000, .tv_nsec = left_us % 1'000'000 * 1000};
    ::ppoll(wanted.data(), wanted.size(), next_us < 0 ? nullptr : &timeout, nullptr);
    for (size_t host = 0; host < cards_.size(); ++host) {
      if (wanted[host].revents != 0) receive(static_cast<int>(host));
    }
  }
}

void Relay::receive(int from) {
  std::array<std::byte, kMostPacket> buffer;
  for (int i = 0; i < kPacketsAtOnce; ++i) {
    const ssize_t bytes = ::read(cards_[static_cast<size_t>(from)], buffer.data(), buffer.size());
    if (bytes <= 0) return;  // nothing more
    if (static_cast<size_t>(bytes) < kIpHeader || static_cast<int>(buffer[0]) >> 4 != 4) continue;
    const int to = static_cast<int>(buffer[kDestination + 3]) - 1;
    if (to < 0 || to >= static_cast<int>(cards_.size())) continue;
    Way& the_way = way(from, to);
    std::deque<Queued>& queue = queues_[index(from, to)];
    const bool lost = std::uniform_real_distribution<>()(random_) < the_way.loss;
    if (the_way.cut || lost || queue.size() >= kMostQueued) {
      ++the_way.dropped;
      continue;
    }
    Packet packet(buffer.begin(), buffer.begin() + bytes);
    const int64_t delay_us = the_way.delay_us;
    if (delay_us == 0 && queue.empty()) {
      deliver(to, the_way, packet);
    } else {
      queue.push_back({now_us() + delay_us, std::move(packet)});
    }
  }
}

int64_t Relay::deliver_due() {
  int64_t next_us = -1;
  const int hosts = static_cast<int>(cards_.size());
  for (int from = 0; from < hosts; ++from) {
    for (int to = 0; to < hosts; ++to) {
      std::deque<Queued>& queue = queues_[index(from, to)];
      for (; !queue.empty() && queue.front().due_us <= now_us(); queue.pop_front())
        deliver(to, way(from, to), queue.front().packet);
      if (!queue.empty() && (next_us < 0 || queue.front().due_us < next_us)) next_us = queue.front().due_us;
    }
  }
  return next_us;
}

void Relay::deliver(int to, Way& the_way, const Packet& packet) {
  // A card whose link is down takes nothing: the packet is lost, as on a cable.
  const bool taken = !the_way.cut && ::write(cards_[static_cast<size_t>(to)], packet.data(), packet.size()) ==
                                         static_cast<ssize_t>(packet.size());
  ++(taken ? the_way.carried : the_way.dropped);
}

}  // namespace coprime
