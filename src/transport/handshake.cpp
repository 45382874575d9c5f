#include "transport/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace coprime {
namespace {

// What every end says first, in all versions: little-endian.
struct Hello {
  uint32_t magic, version;
  std::array<std::byte, 32> nonce;
};
static_assert(sizeof(Hello) == 40);

struct AnswerHead {
  uint32_t verdict, bytes;
};

// Verdicts of the answer. With kUnproved, the proof is empty too: who has not proved itself is told nothing else.
constexpr uint32_t kAdmitted = 1, kRefused = 2, kRefusedForNow = 3, kUnproved = 4;

constexpr size_t kProofBytes = std::tuple_size_v<SecretKey::Proof>;
constexpr std::string_view kDiallerProof = "coprime handshake: the dialler";
constexpr std::string_view kAcceptorProof = "coprime handshake: the acceptor";
constexpr std::string_view kSession = "coprime handshake: the session";
constexpr std::string_view kOtherKey = "holds another key, or the link changes bytes: give both the same key";

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

template <class T>
T read_as(std::span<const std::byte> bytes) {
  COPRIME_CHECK(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// What another program sent, fit for a terminal.
std::string printable(std::string_view text) {
  std::string out(text);
  std::ranges::replace_if(
      out, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return out;
}

}  // namespace

Handshake::Handshake(bool dials, const SecretKey& key, std::span<const std::byte> payload, uint32_t version)
    : dials_(dials), key_(key), version_(version), payload_(payload.begin(), payload.end()) {
  COPRIME_CHECK(payload.size() <= kMaxPayloadBytes, "a payload of {} bytes", payload.size());
  await(Stage::kHello, sizeof(Hello));
}

Handshake Handshake::dial(const SecretKey& key, std::span<const std::byte> payload, uint32_t version) {
  Handshake handshake(true, key, payload, version);
  Hello hello = {kMagic, version, {}};
  fill_random(hello.nonce);
  handshake.say(bytes_of(hello));
  return handshake;
}

Handshake Handshake::accept(const SecretKey& key, uint32_t version) { return Handshake(false, key, {}, version); }

void Handshake::say(std::span<const std::byte> bytes) {
  unsent_.insert(unsent_.end(), bytes.begin(), bytes.end());
  transcript_.insert(transcript_.end(), bytes.begin(), bytes.end());
}

void Handshake::await(Stage stage, size_t bytes) {
  stage_ = stage;
  wanted_ = bytes;
  received_.clear();
}

void Handshake::fail(std::string why) {
  state_ = State::kFailed;
  failure_ = std::move(why);
  await(Stage::kOver, 0);
}

void Handshake::sent(size_t bytes) {
  COPRIME_CHECK(bytes <= unsent().size(), "{} bytes sent of {}", bytes, unsent().size());
  sent_ += bytes;
}

void Handshake::receive(std::span<const std::byte> bytes) {
  COPRIME_CHECK(bytes.size() <= wanted(), "{} bytes where {} are wanted", bytes.size(), wanted());
  received_.insert(received_.end(), bytes.begin(), bytes.end());
  if (wanted() > 0 || stage_ == Stage::kOver) return;
  switch (stage_) {
    case Stage::kHello:
      return on_hello();
    case Stage::kClaimHead: {
      const auto length = read_as<uint32_t>(received_);
      if (length > kMaxPayloadBytes) {
        return fail(fmt::format("claims {} bytes, more than the {} that there may be", length, kMaxPayloadBytes));
      }
      transcript_.insert(transcript_.end(), received_.begin(), received_.end());
      return await(Stage::kClaimBody, length + kProofBytes);
    }
    case Stage::kClaimBody:
      return on_claim();
    case Stage::kAnswerHead: {
      const auto head = read_as<AnswerHead>(received_);
      if (head.bytes > kMaxPayloadBytes) {
        return fail(fmt::format("claims {} bytes, more than the {} that there may be", head.bytes, kMaxPayloadBytes));
      }
      if (head.verdict == kUnproved) return fail(std::string(kOtherKey));
      verdict_ = head.verdict;
      transcript_.insert(transcript_.end(), received_.begin(), received_.end());
      return await(Stage::kAnswerBody, head.bytes + kProofBytes);
    }
    case Stage::kAnswerBody:
      return on_answer();
    case Stage::kOver:
      return;
  }
}

void Handshake::on_hello() {
  const auto hello = read_as<Hello>(received_);
  if (hello.magic != kMagic) {
    return fail(fmt::format("is no part of a coprime world (it begins with {:#010x})", hello.magic));
  }
  const bool same_version = hello.version == version_;
  transcript_.insert(transcript_.end(), received_.begin(), received_.end());
  if (!dials_) {
    Hello own = {kMagic, version_, {}};
    fill_random(own.nonce);
    say(bytes_of(own));
  }
  if (!same_version) {
    return fail(fmt::format("speaks version {} of the protocol, this program version {}: run the same coprime on both",
                            hello.version, version_));
  }
  if (!dials_) return await(Stage::kClaimHead, sizeof(uint32_t));
  const auto length = static_cast<uint32_t>(payload_.size());
  say(bytes_of(length));
  say(payload_);
  say(key_.prove(kDiallerProof, transcript_));
  await(Stage::kAnswerHead, sizeof(AnswerHead));
}

void Handshake::on_claim() {
  const std::span<const std::byte> body(received_);
  const std::span<const std::byte> payload = body.first(body.size() - kProofBytes);
  transcript_.insert(transcript_.end(), payload.begin(), payload.end());
  const std::span<const std::byte> proof = body.last(kProofBytes);
  if (!key_.verify(kDiallerProof, transcript_, proof)) {
    const AnswerHead head = {kUnproved, 0};
    say(bytes_of(head));
    return fail(std::string(kOtherKey));
  }
  transcript_.insert(transcript_.end(), proof.begin(), proof.end());
  peer_payload_.assign(payload.begin(), payload.end());
  state_ = State::kClaimed;
  await(Stage::kOver, 0);
}

void Handshake::answer(uint32_t verdict, std::span<const std::byte> payload) {
  COPRIME_CHECK(state_ == State::kClaimed && payload.size() <= kMaxPayloadBytes, "an answer of {} bytes",
                payload.size());
  const AnswerHead head = {verdict, static_cast<uint32_t>(payload.size())};
  say(bytes_of(head));
  say(payload);
  say(key_.prove(kAcceptorProof, transcript_));
}

void Handshake::admit(std::span<const std::byte> payload) {
  answer(kAdmitted, payload);
  finish();
}

void Handshake::refuse(std::string_view reason, bool try_again) {
  answer(try_again ? kRefusedForNow : kRefused, std::as_bytes(std::span(reason.substr(0, kMaxPayloadBytes))));
  fail(fmt::format("was refused: {}", reason));
}

void Handshake::on_answer() {
  const std::span<const std::byte> body(received_);
  const std::span<const std::byte> payload = body.first(body.size() - kProofBytes);
  transcript_.insert(transcript_.end(), payload.begin(), payload.end());
  const std::span<const std::byte> proof = body.last(kProofBytes);
  if (!key_.verify(kAcceptorProof, transcript_, proof)) return fail(std::string(kOtherKey));
  transcript_.insert(transcript_.end(), proof.begin(), proof.end());
  if (verdict_ != kAdmitted) {
    try_again_ = verdict_ == kRefusedForNow;
    return fail(fmt::format("refuses: {}", printable(as_text(payload))));
  }
  peer_payload_.assign(payload.begin(), payload.end());
  finish();
}

void Handshake::finish() {
  session_key_.emplace(key_.derive(kSession, transcript_));
  state_ = State::kDone;
  await(Stage::kOver, 0);
}

const SecretKey& Handshake::session_key() const {
  COPRIME_CHECK(state_ == State::kDone && session_key_.has_value());
  return *session_key_;
}

}  // namespace coprime
