#include "transport/progress_page.h"

#include <new>

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {
constexpr uint64_t kMagic = 0x1d50524f47524553;
constexpr size_t kHeaderBytes = 128;
}  // namespace

struct ProgressPage::Header {
  uint64_t magic;
  uint64_t ranks;
};

ProgressPage ProgressPage::create(int ranks) {
  COPRIME_CHECK(ranks >= 1 && ranks <= kMaxRanks, "{} ranks", ranks);
  const size_t bytes = kHeaderBytes + static_cast<size_t>(ranks) * sizeof(Line);
  ProgressPage page(SharedMemory::create("the ranks' progress page", bytes, "free some memory"));
  new (page.memory_.data()) Header{kMagic, static_cast<uint64_t>(ranks)};
  return page;
}

ProgressPage ProgressPage::attach(UniqueFd fd) {
  ProgressPage page(SharedMemory::attach("the ranks' progress page", std::move(fd)));
  const size_t bytes = page.memory_.size();
  if (bytes < kHeaderBytes) fail(ErrorKind::kLink, "the ranks' progress page has {} bytes", bytes);
  const auto* header = reinterpret_cast<const Header*>(page.memory_.data());
  if (header->magic != kMagic || header->ranks < 1 || header->ranks > kMaxRanks ||
      bytes != kHeaderBytes + header->ranks * sizeof(Line)) {
    fail(ErrorKind::kLink, "descriptor {} is no progress page of this program: start front and ranks from one build",
         page.fd());
  }
  return page;
}

int ProgressPage::ranks() const { return static_cast<int>(reinterpret_cast<const Header*>(memory_.data())->ranks); }

// The memory is zeroed when it is made, and a zeroed lock-free atomic holds zero.
ProgressPage::Line& ProgressPage::line(int rank) const {
  COPRIME_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  return reinterpret_cast<Line*>(memory_.data() + kHeaderBytes)[rank];
}

void ProgressPage::give_up(int rank, int blamed) const {
  line(rank).verdict.store(static_cast<uint32_t>(blamed) + 1, std::memory_order_release);
}

std::optional<int> ProgressPage::blamed_by(int rank) const {
  const uint32_t verdict = line(rank).verdict.load(std::memory_order_acquire);
  if (verdict == 0 || verdict > static_cast<uint32_t>(ranks())) return std::nullopt;
  return static_cast<int>(verdict) - 1;
}

}  // namespace coprime
