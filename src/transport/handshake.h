// Two ends of a stream prove to each other that they hold the same key, and exchange one payload each. Without I/O: the
// owner moves the bytes (see door.h), so that every byte of it can be tested.
//
//   dialler -> acceptor   Hello      magic, version, nonce
//   acceptor -> dialler   Hello      magic, version, nonce           (an acceptor of another version says so and ends)
//   dialler -> acceptor   Claim      length, payload, proof over all that was said
//   acceptor -> dialler   Answer     verdict, length, payload or reason, proof over all that was said
//
// Nothing can be replayed, since both nonces are fresh and stand in every proof; nor reflected, since the two proofs
// have different purposes. A stranger learns the version, and nothing else: payloads and reasons that depend on the
// world are said only to an end that has proved itself. Lengths are bounded before a byte is stored. Payloads are not
// encrypted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/secret_key.h"

namespace coprime {

class Handshake {
 public:
  static constexpr uint32_t kMagic = 0x5052504f;  // "OPRP"
  static constexpr uint32_t kVersion = 1;
  static constexpr size_t kMaxPayloadBytes = 4096;

  // The version is a parameter for tests. Payloads longer than kMaxPayloadBytes are broken invariants.
  static Handshake dial(const SecretKey& key, std::span<const std::byte> payload, uint32_t version = kVersion);
  static Handshake accept(const SecretKey& key, uint32_t version = kVersion);

  enum class State : uint8_t {
    kRunning,
    kClaimed,  // acceptor only: the dialler has proved itself; admit() or refuse() it
    kDone,     // both ends hold the key, and the acceptor has admitted the dialler (once unsent() is empty)
    kFailed,   // failure() says why; what is in unsent() still tells the other end
  };
  State state() const { return state_; }

  // How many bytes may be given to receive() next; never beyond the handshake's own, so that what follows it stays in
  // the socket. 0 when none are awaited.
  size_t wanted() const { return wanted_ - received_.size(); }
  void receive(std::span<const std::byte> bytes);  // at most wanted()

  std::span<const std::byte> unsent() const { return std::span(unsent_).subspan(sent_); }
  void sent(size_t bytes);  // the first bytes of unsent() are on their way

  // In kClaimed. A reason is told to the dialler; with try_again it may come back, else it gives up.
  void admit(std::span<const std::byte> payload);
  void refuse(std::string_view reason, bool try_again);

  // In kClaimed and kDone: what the other end said, proved.
  std::span<const std::byte> peer_payload() const { return peer_payload_; }
  // In kDone: known to these two ends and this handshake only.
  const SecretKey& session_key() const;

  // In kFailed: the reason, to be read after the other end's name: "holds another key: ...".
  const std::string& failure() const { return failure_; }
  bool try_again() const { return try_again_; }  // it refused for a reason that may pass

 private:
  enum class Stage : uint8_t { kHello, kClaimHead, kClaimBody, kAnswerHead, kAnswerBody, kOver };
  Handshake(bool dials, const SecretKey& key, std::span<const std::byte> payload, uint32_t version);

  void say(std::span<const std::byte> bytes);  // queues them, and takes them into the transcript
  void await(Stage stage, size_t bytes);
  void fail(std::string why);
  void on_hello();
  void on_claim();
  void on_answer();
  void answer(uint32_t verdict, std::span<const std::byte> payload);
  void finish();

  bool dials_;
  SecretKey key_;
  uint32_t version_;
  State state_ = State::kRunning;
  Stage stage_ = Stage::kHello;
  std::vector<std::byte> payload_;     // the dialler's, until it is said
  std::vector<std::byte> transcript_;  // all that was said by both, in order
  std::vector<std::byte> received_;    // of the part that is awaited
  size_t wanted_ = 0;
  std::vector<std::byte> unsent_;
  size_t sent_ = 0;
  uint32_t verdict_ = 0;
  std::vector<std::byte> peer_payload_;
  std::optional<SecretKey> session_key_;
  std::string failure_;
  bool try_again_ = false;
};

}  // namespace coprime
