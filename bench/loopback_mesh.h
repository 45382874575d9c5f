// Plain TCP connections between ranks that are forked later.
#pragma once

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace coprime {

// TCP over the loopback, one connection a pair of ranks: ends[r][q] is rank r's end of the connection to rank q.
inline std::vector<std::vector<UniqueFd>> loopback_mesh(int ranks) {
  const auto checked = [](int result, const char* what) {
    if (result < 0) fail(ErrorKind::kLink, "the loopback does not work: {}: {}", what, errno_text(errno));
    return result;
  };
  const auto stream = [&] { return UniqueFd(checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket")); };
  std::vector<std::vector<UniqueFd>> ends(static_cast<size_t>(ranks));
  for (auto& row : ends) row.resize(static_cast<size_t>(ranks));
  for (size_t a = 0; a < ends.size(); ++a) {
    for (size_t b = a + 1; b < ends.size(); ++b) {
      const UniqueFd listener = stream();
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t length = sizeof address;
      auto* const generic = reinterpret_cast<sockaddr*>(&address);
      checked(::bind(listener.get(), generic, length), "bind");
      checked(::listen(listener.get(), 1), "listen");
      checked(::getsockname(listener.get(), generic, &length), "getsockname");
      ends[a][b] = stream();
      checked(::connect(ends[a][b].get(), generic, length), "connect");
      sockaddr_in dialled = {}, accepted = {};
      length = sizeof dialled;
      checked(::getsockname(ends[a][b].get(), reinterpret_cast<sockaddr*>(&dialled), &length), "getsockname");
      ends[b][a] = UniqueFd(
          checked(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&accepted), &length, SOCK_CLOEXEC), "accept"));
      if (accepted.sin_port != dialled.sin_port)
        fail(ErrorKind::kLink, "another program dialled port {} of the loopback: start again", ntohs(address.sin_port));
      const int on = 1;
      for (const UniqueFd* end : {&ends[a][b], &ends[b][a]})
        checked(::setsockopt(end->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), "no delay");
    }
  }
  return ends;
}

}  // namespace coprime
