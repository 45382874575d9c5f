// The rank's end of a world that it joins from elsewhere: dials the front, proves that it holds the key, and serves one
// rank there; joins again when the world ends, if told so.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "engine/rank.h"
#include "transport/endpoint.h"
#include "transport/secret_key.h"

namespace coprime {

// Where a front receives ranks: a TCP address, or an abstract Unix socket for ranks of one user on one host.
struct MeetingPoint {
  Endpoint endpoint;
  std::string socket_name;  // not empty: the Unix socket

  std::string text() const;
};

// What takes a key's place on the loopback, where no key is asked for. Known to everybody.
SecretKey no_key();

// A listening Unix socket of this abstract name. Error(kLink) when it is taken.
UniqueFd listen_on_socket_name(const std::string& name);

struct JoinOptions {
  MeetingPoint front;
  std::optional<SecretKey> key;
  int rank = -1;                // wanted; -1: any
  std::filesystem::path model;  // empty: the front's
  int threads = 0;
  VerbsChoice verbs;
  bool again = true;         // join again when a world has ended or refused for the moment
  int timeout_ms = 300'000;  // without `again`: how long the front may be unreachable
  std::function<void(const std::string&)> report;
  MeasuringService measure;  // see RankPlacement
};

// Returns how the (last) service ended; with `again` only for what coming back will not mend. Error(kLink) when the
// front refuses this rank for good (another key, version or rank) or is not reached in time.
RankEnding join_world(const JoinOptions& options);

}  // namespace coprime
