#include "transport/handshake.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace coprime {
namespace {

using State = Handshake::State;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Gives to `to` what it wants of the bytes; how many that were.
size_t give(Handshake& to, std::span<const std::byte> bytes) {
  size_t given = 0;
  while (given < bytes.size() && to.wanted() > 0) {
    const size_t count = std::min(to.wanted(), bytes.size() - given);
    to.receive(bytes.subspan(given, count));
    given += count;
  }
  return given;
}

// A wire that counts the bytes of both directions in the order in which they pass, shows each to `change`, and keeps
// what the other end does not want yet.
struct Wire {
  std::function<std::byte(size_t place, std::byte)> change = [](size_t, std::byte byte) { return byte; };
  size_t passed = 0;
  std::vector<std::byte> from_dialler, from_acceptor;  // all that passed
  std::vector<std::byte> to_acceptor, to_dialler;      // on the way

  bool move(Handshake& from, Handshake& to, std::vector<std::byte>& log, std::vector<std::byte>& on_way) {
    const auto bytes = from.unsent();
    for (const std::byte byte : bytes) {
      on_way.push_back(change(passed++, byte));
      log.push_back(on_way.back());
    }
    const bool moved = !bytes.empty();
    from.sent(bytes.size());
    const size_t given = give(to, on_way);
    on_way.erase(on_way.begin(), on_way.begin() + static_cast<std::ptrdiff_t>(given));
    return moved || given > 0;
  }

  void run(Handshake& dialler, Handshake& acceptor, std::string_view refusal = {}) {
    while (true) {
      bool moved = move(dialler, acceptor, from_dialler, to_acceptor);
      if (acceptor.state() == State::kClaimed) {
        if (refusal.empty()) {
          acceptor.admit(bytes_of("welcome"));
        } else {
          acceptor.refuse(refusal, true);
        }
      }
      moved |= move(acceptor, dialler, from_acceptor, to_dialler);
      if (!moved) return;
    }
  }
};

TEST(Handshake, both_ends_learn_the_payloads_and_the_same_session_key) {
  const SecretKey key = make_secret_key();
  Handshake dialler = Handshake::dial(key, bytes_of("rank 1")), acceptor = Handshake::accept(key);
  Wire().run(dialler, acceptor);
  ASSERT_EQ(dialler.state(), State::kDone);
  ASSERT_EQ(acceptor.state(), State::kDone);
  EXPECT_EQ(text_of(acceptor.peer_payload()), "rank 1");
  EXPECT_EQ(text_of(dialler.peer_payload()), "welcome");
  EXPECT_TRUE(dialler.session_key() == acceptor.session_key());
  EXPECT_FALSE(dialler.session_key() == key);
}

TEST(Handshake, sessions_have_different_keys) {
  const SecretKey key = make_secret_key();
  std::vector<SecretKey> sessions;
  for (int i = 0; i < 2; ++i) {
    Handshake dialler = Handshake::dial(key, bytes_of("same")), acceptor = Handshake::accept(key);
    Wire().run(dialler, acceptor);
    sessions.push_back(dialler.session_key());
  }
  EXPECT_FALSE(sessions[0] == sessions[1]);
}

TEST(Handshake, payloads_may_be_empty_or_as_long_as_the_bound) {
  const SecretKey key = make_secret_key();
  for (const size_t bytes : {size_t{0}, Handshake::kMaxPayloadBytes}) {
    Handshake dialler = Handshake::dial(key, std::vector<std::byte>(bytes, std::byte{7}));
    Handshake acceptor = Handshake::accept(key);
    Wire().run(dialler, acceptor);
    EXPECT_EQ(dialler.state(), State::kDone);
    EXPECT_EQ(acceptor.peer_payload().size(), bytes);
  }
}

TEST(Handshake, takes_no_byte_that_follows_it) {
  const SecretKey key = make_secret_key();
  Handshake dialler = Handshake::dial(key, bytes_of("rank 1")), acceptor = Handshake::accept(key);
  give(acceptor, dialler.unsent());
  dialler.sent(dialler.unsent().size());
  give(dialler, acceptor.unsent());
  acceptor.sent(acceptor.unsent().size());
  give(acceptor, dialler.unsent());
  acceptor.admit({});
  std::vector<std::byte> answer(acceptor.unsent().begin(), acceptor.unsent().end());
  const size_t own = answer.size();
  answer.resize(own + 100);
  EXPECT_EQ(give(dialler, answer), own);
  EXPECT_EQ(dialler.state(), State::kDone);
  EXPECT_EQ(dialler.wanted(), 0u);
}

TEST(Handshake, another_key_is_told_on_both_sides) {
  Handshake dialler = Handshake::dial(make_secret_key(), bytes_of("rank 1"));
  Handshake acceptor = Handshake::accept(make_secret_key());
  Wire().run(dialler, acceptor);
  for (const Handshake* end : {&dialler, &acceptor}) {
    EXPECT_EQ(end->state(), State::kFailed);
    EXPECT_TRUE(contains(end->failure(), "holds another key")) << end->failure();
  }
}

TEST(Handshake, another_version_is_told_on_both_sides) {
  const SecretKey key = make_secret_key();
  Handshake dialler = Handshake::dial(key, bytes_of("rank 1"), 7), acceptor = Handshake::accept(key, 8);
  Wire().run(dialler, acceptor);
  EXPECT_EQ(dialler.state(), State::kFailed);
  EXPECT_EQ(acceptor.state(), State::kFailed);
  EXPECT_TRUE(contains(dialler.failure(), "speaks version 8 of the protocol, this program version 7"));
  EXPECT_TRUE(contains(acceptor.failure(), "speaks version 7 of the protocol, this program version 8"));
}

TEST(Handshake, a_refusal_carries_its_reason_to_who_has_proved_itself) {
  const SecretKey key = make_secret_key();
  Handshake dialler = Handshake::dial(key, bytes_of("rank 1")), acceptor = Handshake::accept(key);
  Wire().run(dialler, acceptor, "there is a rank 1\x1b[31m already");
  EXPECT_EQ(dialler.state(), State::kFailed);
  EXPECT_EQ(dialler.failure(), "refuses: there is a rank 1?[31m already");  // no control characters reach a terminal
  EXPECT_TRUE(dialler.try_again());
  EXPECT_TRUE(contains(acceptor.failure(), "was refused: there is a rank 1"));
}

TEST(Handshake, a_stranger_learns_nothing_but_the_version) {
  const SecretKey key = make_secret_key();
  Handshake stranger = Handshake::dial(make_secret_key(), bytes_of("let me in")), acceptor = Handshake::accept(key);
  Wire wire;
  wire.run(stranger, acceptor);
  EXPECT_EQ(wire.from_acceptor.size(), 40u + 8u);  // magic, version, nonce; "you have not proved yourself"
}

// Every byte of every message, each bit of it: the end that takes it does not succeed.
TEST(Handshake, a_flipped_bit_at_any_place_ends_it) {
  const SecretKey key = make_secret_key();
  size_t total = 0;
  {
    Handshake dialler = Handshake::dial(key, bytes_of("rank 1")), acceptor = Handshake::accept(key);
    Wire wire;
    wire.run(dialler, acceptor);
    total = wire.passed;
  }
  ASSERT_EQ(total, 40u + 40 + (4 + 6 + 32) + (8 + 7 + 32));
  for (size_t place = 0; place < total; ++place) {
    for (int bit = 0; bit < 8; ++bit) {
      Handshake dialler = Handshake::dial(key, bytes_of("rank 1")), acceptor = Handshake::accept(key);
      Wire wire;
      wire.change = [&](size_t at, std::byte byte) { return at == place ? byte ^ (std::byte{1} << bit) : byte; };
      wire.run(dialler, acceptor);
      EXPECT_NE(dialler.state(), State::kDone) << place << " " << bit;
      // Who admits cannot know what becomes of its last words.
      if (place < total - 47) {
        EXPECT_NE(acceptor.state(), State::kDone) << place << " " << bit;
      }
    }
  }
}

TEST(Handshake, what_one_end_said_opens_no_other_door) {
  const SecretKey key = make_secret_key();
  Handshake dialler = Handshake::dial(key, bytes_of("rank 1")), acceptor = Handshake::accept(key);
  Wire wire;
  wire.run(dialler, acceptor);
  Handshake again = Handshake::accept(key);
  give(again, wire.from_dialler);
  EXPECT_EQ(again.state(), State::kFailed);
  Handshake dialler_again = Handshake::dial(key, bytes_of("rank 1"));
  give(dialler_again, wire.from_acceptor);
  EXPECT_EQ(dialler_again.state(), State::kFailed);
}

// A stranger that sends back whatever it gets.
TEST(Handshake, an_echo_is_no_proof) {
  const SecretKey key = make_secret_key();
  Handshake dialler = Handshake::dial(key, bytes_of("rank 1"));
  for (int i = 0; i < 10 && dialler.state() == State::kRunning; ++i) {
    const std::vector<std::byte> said(dialler.unsent().begin(), dialler.unsent().end());
    dialler.sent(said.size());
    give(dialler, said);
  }
  EXPECT_NE(dialler.state(), State::kDone);
}

TEST(Handshake, a_length_beyond_the_bound_is_refused_before_it_is_used) {
  const SecretKey key = make_secret_key();
  for (const uint32_t length : {uint32_t{Handshake::kMaxPayloadBytes} + 1, ~uint32_t{0}}) {
    Handshake dialler = Handshake::dial(key, {}), acceptor = Handshake::accept(key);
    give(acceptor, dialler.unsent());
    give(acceptor, std::as_bytes(std::span(&length, 1)));
    EXPECT_EQ(acceptor.state(), State::kFailed);
    EXPECT_TRUE(contains(acceptor.failure(), "more than the 4096")) << acceptor.failure();

    give(dialler, acceptor.unsent());
    const uint32_t head[2] = {1, length};
    give(dialler, std::as_bytes(std::span(head)));
    EXPECT_EQ(dialler.state(), State::kFailed);
    EXPECT_TRUE(contains(dialler.failure(), "more than the 4096")) << dialler.failure();
  }
}

TEST(Handshake, another_protocol_is_named_by_its_first_bytes) {
  Handshake acceptor = Handshake::accept(make_secret_key());
  give(acceptor, bytes_of("GET / HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n"));
  EXPECT_EQ(acceptor.state(), State::kFailed);
  EXPECT_TRUE(contains(acceptor.failure(), "is no part of a coprime world (it begins with 0x20544547)"));
  EXPECT_TRUE(acceptor.unsent().empty());  // it is told nothing
}

// Random bytes, valid beginnings with random ends, in random pieces: nobody gets in, nothing is kept beyond the bounds.
TEST(HandshakeSoak, random_bytes_never_succeed) {
  const SecretKey key = make_secret_key();
  std::mt19937 random(1);  // the same bytes on every run
  for (int round = 0; round < 20'000; ++round) {
    Handshake dialler = Handshake::dial(key, bytes_of("rank 1")), acceptor = Handshake::accept(key);
    const bool attacks_acceptor = round % 2 == 0;
    Handshake& victim = attacks_acceptor ? acceptor : dialler;
    std::vector<std::byte> bytes;
    if (round % 4 < 2) {  // an honest hello first
      Handshake honest = attacks_acceptor ? Handshake::dial(key, {}) : Handshake::accept(key);
      if (!attacks_acceptor) give(honest, dialler.unsent());
      bytes.assign(honest.unsent().begin(), honest.unsent().end());
      if (round % 8 < 2) {  // and a length that is allowed
        const uint32_t head[2] = {static_cast<uint32_t>(random() % 6), static_cast<uint32_t>(random() % 5000)};
        const auto words = std::as_bytes(std::span(head));
        bytes.insert(bytes.end(), words.begin() + (attacks_acceptor ? 4 : 0), words.end());
      }
    }
    for (size_t count = random() % 6000; count > 0; --count) bytes.push_back(static_cast<std::byte>(random()));
    for (size_t at = 0; at < bytes.size() && victim.wanted() > 0;) {
      ASSERT_LE(victim.wanted(), Handshake::kMaxPayloadBytes + 32);
      const size_t count = std::min({victim.wanted(), bytes.size() - at, size_t{1} + random() % 700});
      victim.receive(std::span(bytes).subspan(at, count));
      at += count;
    }
    ASSERT_TRUE(victim.state() == State::kRunning || victim.state() == State::kFailed);
  }
}

}  // namespace
}  // namespace coprime
