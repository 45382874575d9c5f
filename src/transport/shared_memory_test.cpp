#include "transport/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "transport/progress_page.h"
#include "transport/shm/shm_region.h"

namespace coprime {
namespace {

UniqueFd duplicate(int fd) { return UniqueFd(::fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

// The error that `body` throws, as "kind: text"; empty when it throws none.
template <class Body>
std::string error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return fmt::format("{}: {}", exit_code(error.kind()), error.what());
  }
  return "";
}

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(SharedMemory, two_mappings_show_the_same_bytes) {
  const SharedMemory memory = SharedMemory::create("a test", 100'000, "no advice");
  const SharedMemory other = SharedMemory::attach("a test", duplicate(memory.fd()));
  ASSERT_EQ(other.size(), 100'000u);
  ASSERT_NE(memory.data(), other.data());
  std::memset(memory.data() + 99'000, 5, 1000);
  EXPECT_EQ(other.data()[99'999], std::byte{5});
  EXPECT_EQ(other.data()[98'999], std::byte{0});
}

TEST(SharedMemory, its_size_is_sealed) {
  const SharedMemory memory = SharedMemory::create("a test", 8192, "no advice");
  EXPECT_NE(::ftruncate(memory.fd(), 4096), 0);
  EXPECT_NE(::ftruncate(memory.fd(), 1 << 20), 0);
  EXPECT_NE(::fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedMemory, all_of_it_is_allocated_at_once) {
  const SharedMemory memory = SharedMemory::create("a test", size_t{8} << 20, "no advice");
  struct stat status = {};
  ASSERT_EQ(::fstat(memory.fd(), &status), 0);
  EXPECT_GE(status.st_blocks * 512, 8 << 20);
}

TEST(SharedMemory, another_kind_of_descriptor_is_refused) {
  const std::string unsealed = error_of([] {
    UniqueFd fd(::memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
    SharedMemory::attach("the window", std::move(fd));
  });
  EXPECT_TRUE(contains(unsealed, "4: the window: descriptor ")) << unsealed;
  EXPECT_TRUE(
      contains(error_of([] { SharedMemory::attach("the window", UniqueFd(::open("/dev/null", O_RDWR))); }), "4: "));
  EXPECT_TRUE(contains(error_of([] { SharedMemory::attach("the window", UniqueFd()); }), "4: "));
}

// Keeps a broken check from taking the whole machine's memory: files end at 1 GiB while it lives.
class SmallFiles {
 public:
  SmallFiles() {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit = {.rlim_cur = 1 << 30, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~SmallFiles() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  SmallFiles(const SmallFiles&) = delete;
  SmallFiles& operator=(const SmallFiles&) = delete;

 private:
  rlimit before_ = {};
};

TEST(ShmRegion, more_than_is_available_is_refused_with_both_numbers) {
  const SmallFiles guard;
  const std::string error = error_of([] { ShmRegion::create(16, size_t{1} << 42); });
  EXPECT_TRUE(contains(error, "2: the shared window needs 134217728.")) << error;
  EXPECT_TRUE(contains(error, "MiB are available: use a smaller --prefill-chunk or fewer ranks")) << error;
}

TEST(ShmRegion, sizes_that_overflow_are_refused) {
  const SmallFiles guard;
  for (const size_t bytes : {size_t{1} << 58, size_t{1} << 60, size_t{1} << 63, ~size_t{0}, ~size_t{0} - 4095}) {
    EXPECT_TRUE(contains(error_of([&] { ShmRegion::create(16, bytes); }), "--prefill-chunk")) << bytes;
  }
}

// SIGXFSZ ends a process that does not hold it back.
TEST(ShmRegion, a_file_size_limit_is_an_error_and_no_signal) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit = {.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(1);
    const std::string error = error_of([] { ShmRegion::create(4, 1 << 20); });
    const bool named = contains(error, "2: the shared window needs 8.") && contains(error, "ulimit -f) allows 1.0 MiB");
    sigset_t pending;
    sigpending(&pending);
    ::_exit(named && sigismember(&pending, SIGXFSZ) == 0 ? 0 : 2);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(ShmRegion, an_attached_region_has_the_same_layout) {
  const ShmRegion region = ShmRegion::create(3, 5000);
  const ShmRegion other = ShmRegion::attach(duplicate(region.fd()));
  EXPECT_EQ(other.ranks(), 3);
  EXPECT_EQ(other.slot_bytes(), 8192u);
  for (int rank = 0; rank < 3; ++rank) {
    for (int parity = 0; parity < 2; ++parity) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(region.slot(rank, parity)) % 64, 0u);
      region.slot(rank, parity)[8191] = static_cast<std::byte>(10 * rank + parity + 1);
    }
    region.control(rank).published.store(static_cast<uint64_t>(rank) + 7);
  }
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(other.slot(rank, 0)[8191], static_cast<std::byte>(10 * rank + 1));
    EXPECT_EQ(other.slot(rank, 1)[8191], static_cast<std::byte>(10 * rank + 2));
    EXPECT_EQ(other.slot(rank, 0)[0], std::byte{0});
    EXPECT_EQ(other.control(rank).published.load(), static_cast<uint64_t>(rank) + 7);
  }
}

TEST(ShmRegion, a_progress_page_is_no_region) {
  const ProgressPage page = ProgressPage::create(3);
  EXPECT_TRUE(contains(error_of([&] { ShmRegion::attach(duplicate(page.fd())); }), "4: "));
  const ShmRegion region = ShmRegion::create(1, 64);
  EXPECT_TRUE(contains(error_of([&] { ProgressPage::attach(duplicate(region.fd())); }), "4: "));
}

}  // namespace
}  // namespace coprime
