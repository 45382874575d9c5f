// The keyed hash (BLAKE2b, 16 bytes) that proves who sent a message, to whom, in which place, and that no bit of it was
// changed. One object for one direction of one connection; both ends make the same.
//
// The key belongs to this connection and this session only: derived from the world's key and fresh nonces of both
// ends, so that nothing that was said before is ever right again.
#pragma once

#include <sodium.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace coprime {

inline constexpr size_t kMessageProofBytes = 16;
using SessionKey = std::span<const std::byte, 32>;
using MessageProof = std::array<std::byte, kMessageProofBytes>;

class MessageAuthenticator {
 public:
  MessageAuthenticator(SessionKey key, uint32_t epoch, int sender, int receiver);
  MessageAuthenticator(const MessageAuthenticator&) = delete;
  ~MessageAuthenticator();  // wipes what it knows of the key

  // Messages are numbered from 1 in the order of their sends. Tag and label are those of the work request.
  struct Place {
    uint64_t number = 0, label = 0;
    uint32_t tag = 0;
  };
  MessageProof prove(const Place& place, std::span<const std::byte> payload) const;
  // Compared in a time that does not depend on the bytes.
  bool verify(const Place& place, std::span<const std::byte> payload, const MessageProof& proof) const;

 private:
  crypto_generichash_state keyed_;  // after the key
  uint32_t epoch_, sender_, receiver_;
};

}  // namespace coprime
