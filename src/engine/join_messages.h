// What a rank from elsewhere and the front's reception say in the payloads of their handshakes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace coprime {

struct JoinRequest {
  std::string version;
  bool control = true;  // else the second connection, of progress
  int rank = -1;        // wanted; -1: any. On the second connection the one that it got
  uint64_t ticket = 0;  // the same random number on both connections, not 0
};

struct JoinAnswer {
  int rank = 0, ranks = 1;
};

std::vector<std::byte> encode(const JoinRequest& request);
std::vector<std::byte> encode(const JoinAnswer& answer);
// Error(kLink) for bytes that are no such message.
JoinRequest decode_join_request(std::span<const std::byte> bytes);
JoinAnswer decode_join_answer(std::span<const std::byte> bytes);

}  // namespace coprime
