#include "transport/message_authenticator.h"

#include <bit>

#include "base/check.h"
#include "base/error.h"

namespace coprime {
namespace {

static_assert(std::endian::native == std::endian::little, "what is hashed is little-endian");

// Hashed before the payload; it does not travel.
struct Hashed {
  uint32_t epoch, sender, receiver, tag;
  uint64_t number, label, bytes;
};
static_assert(sizeof(Hashed) == 40, "no padding");

const unsigned char* unsigned_chars(const void* data) { return static_cast<const unsigned char*>(data); }

}  // namespace

MessageAuthenticator::MessageAuthenticator(SessionKey key, uint32_t epoch, int sender, int receiver)
    : epoch_(epoch), sender_(static_cast<uint32_t>(sender)), receiver_(static_cast<uint32_t>(receiver)) {
  static_assert(kMessageProofBytes >= crypto_generichash_BYTES_MIN);
  if (sodium_init() < 0) fail(ErrorKind::kInternal, "libsodium finds no random numbers on this system");
  const int made = crypto_generichash_init(&keyed_, unsigned_chars(key.data()), key.size(), kMessageProofBytes);
  COPRIME_CHECK(made == 0);
}

MessageAuthenticator::~MessageAuthenticator() { sodium_memzero(&keyed_, sizeof keyed_); }

MessageProof MessageAuthenticator::prove(const Place& place, std::span<const std::byte> payload) const {
  const Hashed hashed = {epoch_, sender_, receiver_, place.tag, place.number, place.label, payload.size()};
  crypto_generichash_state state = keyed_;
  MessageProof proof;
  crypto_generichash_update(&state, unsigned_chars(&hashed), sizeof hashed);
  crypto_generichash_update(&state, unsigned_chars(payload.data()), payload.size());
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(proof.data()), proof.size());
  return proof;
}

bool MessageAuthenticator::verify(const Place& place, std::span<const std::byte> payload,
                                  const MessageProof& proof) const {
  const MessageProof expected = prove(place, payload);
  return sodium_memcmp(expected.data(), proof.data(), proof.size()) == 0;
}

}  // namespace coprime
