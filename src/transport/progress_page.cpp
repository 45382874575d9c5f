#include "transport/progress_page.h"

#include <time.h>

#include <new>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

namespace coprime {
namespace {

constexpr uint64_t kMagic = 0x2d50524f47524553;
constexpr uint64_t kMirrorMagic = 0x2d50524f474d4952;
constexpr size_t kHeaderBytes = 256;

// A claim has no origin but its rank; a verdict names both. 0 is no word, since the low half of one is never 0.
constexpr uint64_t claim_of(uint32_t epoch, int blamed) {
  return uint64_t{epoch} << 32 | (static_cast<uint64_t>(blamed) + 1);
}
constexpr uint64_t verdict_of(uint32_t epoch, int origin, int blamed) {
  return claim_of(epoch, blamed) | (static_cast<uint64_t>(origin) + 1) << 16;
}
constexpr uint32_t epoch_of(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
constexpr int blamed_in(uint64_t word) { return static_cast<int>(word & 0xffff) - 1; }
constexpr int origin_in(uint64_t word) { return static_cast<int>(word >> 16 & 0xffff) - 1; }

}  // namespace

struct ProgressPage::Header {
  uint64_t magic;
  uint64_t ranks;
  alignas(128) std::atomic<uint64_t> verdict;  // the front's page: by compare-and-exchange; a mirroring one: the mirror
  std::atomic<int64_t> front_heard_us;         // a mirroring page: the mirror
};

ProgressPage ProgressPage::create(int ranks, Kind kind) {
  COPRIME_CHECK(ranks >= 1 && ranks <= kMaxRanks, "{} ranks", ranks);
  static_assert(sizeof(Header) == kHeaderBytes);
  const size_t bytes = kHeaderBytes + static_cast<size_t>(ranks) * sizeof(Line);
  ProgressPage page(SharedMemory::create("the ranks' progress page", bytes, "free some memory"), ranks, kind);
  // The memory is zeroed when it is made, and a zeroed lock-free atomic holds zero.
  page.header().magic = kind == Kind::kFronts ? kMagic : kMirrorMagic;
  page.header().ranks = static_cast<uint64_t>(ranks);
  return page;
}

ProgressPage ProgressPage::attach(UniqueFd fd) {
  SharedMemory memory = SharedMemory::attach("the ranks' progress page", std::move(fd));
  if (memory.size() < kHeaderBytes) fail(ErrorKind::kLink, "the ranks' progress page has {} bytes", memory.size());
  const auto* header = reinterpret_cast<const Header*>(memory.data());
  const uint64_t magic = header->magic, ranks = header->ranks;
  if ((magic != kMagic && magic != kMirrorMagic) || ranks < 1 || ranks > kMaxRanks ||
      memory.size() != kHeaderBytes + ranks * sizeof(Line)) {
    fail(ErrorKind::kLink, "descriptor {} is no progress page of this program: start front and ranks from one build",
         memory.fd());
  }
  return {std::move(memory), static_cast<int>(ranks), magic == kMagic ? Kind::kFronts : Kind::kMirror};
}

ProgressPage::Header& ProgressPage::header() const { return *reinterpret_cast<Header*>(memory_.data()); }

ProgressPage::Line& ProgressPage::line(int rank) const {
  COPRIME_CHECK(rank >= 0 && rank < ranks_, "rank {} of {}", rank, ranks_);
  return reinterpret_cast<Line*>(memory_.data() + kHeaderBytes)[rank];
}

std::atomic<uint64_t>& ProgressPage::verdict_cell() const { return header().verdict; }

std::optional<Culprit> ProgressPage::decode(uint64_t word, uint32_t epoch) const {
  const Culprit culprit = {origin_in(word), blamed_in(word)};
  const bool valid = culprit.origin >= 0 && culprit.origin < ranks_ && culprit.blamed >= 0 && culprit.blamed < ranks_;
  if (!valid || epoch_of(word) != epoch) return std::nullopt;
  return culprit;
}

std::optional<Culprit> ProgressPage::verdict(uint32_t epoch) const {
  return decode(verdict_cell().load(std::memory_order_acquire), epoch);
}

Culprit ProgressPage::settle(uint32_t epoch, int rank, int blamed) const {
  COPRIME_CHECK(blamed >= 0 && blamed < ranks_, "rank {} of {} is blamed", blamed, ranks_);
  const Culprit own = {rank, blamed};
  if (kind_ == Kind::kFronts) {
    adopt_verdict(verdict_of(epoch, rank, blamed));
    return verdict(epoch).value_or(own);
  }
  line(rank).claim.store(claim_of(epoch, blamed), std::memory_order_release);
  const int64_t deadline_us = now_us() + kSettleUs;
  while (true) {
    if (const std::optional<Culprit> culprit = verdict(epoch)) return *culprit;
    if (header().front_heard_us.load(std::memory_order_acquire) == 0 || now_us() >= deadline_us) return own;
    const timespec pause = {.tv_sec = 0, .tv_nsec = 500'000};
    ::nanosleep(&pause, nullptr);
  }
}

void ProgressPage::adopt_claim(int rank, uint64_t claim) const {
  if (claim == 0 || blamed_in(claim) < 0 || blamed_in(claim) >= ranks_) return;
  adopt_verdict(verdict_of(epoch_of(claim), rank, blamed_in(claim)));
}

// The first of an epoch stays; a newer epoch replaces an older one.
void ProgressPage::adopt_verdict(uint64_t verdict) const {
  if (!decode(verdict, epoch_of(verdict))) return;
  uint64_t current = verdict_cell().load(std::memory_order_acquire);
  while (current == 0 || epoch_of(current) < epoch_of(verdict)) {
    if (verdict_cell().compare_exchange_weak(current, verdict, std::memory_order_acq_rel)) return;
  }
}

void ProgressPage::set_front_heard(int64_t time_us) const {
  header().front_heard_us.store(time_us, std::memory_order_release);
}

void ProgressPage::set_heard(int rank, int64_t time_us) const {
  line(rank).heard_us.store(time_us, std::memory_order_relaxed);
}

bool ProgressPage::is_silent(int rank, int64_t for_us) const {
  const int64_t heard_us = line(rank).heard_us.load(std::memory_order_relaxed);
  return heard_us != 0 && now_us() - heard_us > for_us;
}

bool ProgressPage::front_is_silent(int64_t for_us) const {
  return kind_ == Kind::kMirror && now_us() - header().front_heard_us.load(std::memory_order_acquire) > for_us;
}

}  // namespace coprime
