#include "transport/shared_memory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "transport/memory_limit.h"

namespace coprime {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr double kMiB = 1024.0 * 1024.0;
// What is left to the system and to the ranks themselves when memory is nearly gone.
constexpr int64_t kReserveBytes = int64_t{32} << 20;

// Holds back SIGXFSZ, which a file size limit sends with EFBIG, for as long as it lives; the error number is enough.
class WithoutFileSizeSignal {
 public:
  WithoutFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  ~WithoutFileSizeSignal() {
    const timespec now = {};
    if (!was_pending_) sigtimedwait(&signal_, nullptr, &now);  // takes the one that we caused
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutFileSizeSignal(const WithoutFileSizeSignal&) = delete;
  WithoutFileSizeSignal& operator=(const WithoutFileSizeSignal&) = delete;

 private:
  sigset_t signal_, before_;
  bool was_pending_ = false;
};

// 0 or the error number.
int allocate(int fd, size_t bytes) {
  const WithoutFileSizeSignal guard;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) return errno;
  int result;
  do result = ::fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

SharedMemory SharedMemory::create(std::string_view what, size_t bytes, std::string_view advice) {
  const int64_t available = available_memory_bytes();
  const int64_t usable = available - std::min(available, kReserveBytes);
  if (bytes > static_cast<uint64_t>(usable)) {
    fail(ErrorKind::kUsage, "{} needs {:.1f} MiB, {:.1f} MiB are available: {}", what,
         static_cast<double>(bytes) / kMiB, static_cast<double>(usable) / kMiB, advice);
  }
  UniqueFd fd(::memfd_create("coprime", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) fail(ErrorKind::kUsage, "{} cannot be made: {}", what, errno_text(errno));
  const int error = allocate(fd.get(), bytes);
  if (error == EFBIG) {
    rlimit limit = {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    fail(ErrorKind::kUsage,
         "{} needs {:.1f} MiB, the file size limit (ulimit -f) allows {:.1f} MiB: raise the limit, or {}", what,
         static_cast<double>(bytes) / kMiB, static_cast<double>(limit.rlim_cur) / kMiB, advice);
  }
  if (error != 0) {
    fail(ErrorKind::kUsage, "{} needs {:.1f} MiB, which the system does not give ({}): {}", what,
         static_cast<double>(bytes) / kMiB, errno_text(error), advice);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    fail(ErrorKind::kUsage, "{} cannot be sealed: {}", what, errno_text(errno));
  }
  return map(what, std::move(fd), bytes, advice);
}

SharedMemory SharedMemory::attach(std::string_view what, UniqueFd fd) {
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) {
    fail(ErrorKind::kLink, "{}: descriptor {}: {}", what, fd.get(), errno_text(errno));
  }
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || status.st_size <= 0) {
    fail(ErrorKind::kLink, "{}: descriptor {} is not the memory that the front made", what, fd.get());
  }
  return map(what, std::move(fd), static_cast<size_t>(status.st_size), "use fewer ranks");
}

// MAP_POPULATE: the page tables are filled now, so that the first gates do not fault.
SharedMemory SharedMemory::map(std::string_view what, UniqueFd fd, size_t bytes, std::string_view advice) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    fail(ErrorKind::kUsage, "{} of {:.1f} MiB cannot be mapped ({}): {}", what, static_cast<double>(bytes) / kMiB,
         errno_text(errno), advice);
  }
  return SharedMemory(std::move(fd), static_cast<std::byte*>(data), bytes);
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

}  // namespace coprime
