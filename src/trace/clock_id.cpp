#include "trace/clock_id.h"

#include <unistd.h>

#include <fstream>
#include <string>

#include "base/hash.h"

namespace coprime {

// A time namespace shifts the monotonic clock: its name belongs to the clock's.
uint64_t clock_id() {
  std::string boot;
  if (!std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot) || boot.empty()) return 0;
  char name[64];
  const ssize_t length = ::readlink("/proc/self/ns/time", name, sizeof name);
  if (length > 0) boot.append(name, static_cast<size_t>(length));
  return hash_bytes(std::as_bytes(std::span(boot)));
}

}  // namespace coprime
