// What the tests of queue pairs and channels share: bytes to send, and two ends to send them between.
#pragma once

#include <sys/socket.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace coprime::testing {

inline std::vector<std::byte> pattern(size_t bytes, uint64_t seed) {
  std::vector<std::byte> data(bytes);
  for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((i * 2654435761u + seed * 977) >> 11);
  return data;
}

inline std::pair<UniqueFd, UniqueFd> stream_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) fail(ErrorKind::kLink, "no socket pair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace coprime::testing
