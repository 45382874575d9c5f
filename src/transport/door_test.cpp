#include "transport/door.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "transport/socket.h"

namespace coprime {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// A door that admits everybody who has proved itself, served by the test.
struct House {
  Listener listener = Listener::open({"127.0.0.1", 0}, false, "");
  SecretKey key = make_secret_key();
  Door door{listener.fd(), key};
  std::vector<Authenticated> guests;
  std::vector<std::string> refusals;
  Admission answer = Admission::welcome({});

  void serve(int64_t for_us) {
    const int64_t end_us = now_us() + for_us;
    while (now_us() < end_us) {
      for (Authenticated& guest : door.serve([&](auto, const auto&) { return answer; }))
        guests.push_back(std::move(guest));
      for (std::string& refusal : door.take_refusals()) refusals.push_back(std::move(refusal));
      std::vector<pollfd> wanted;
      door.append_to(wanted);
      ::poll(wanted.data(), wanted.size(), 5);
    }
  }
  template <class F>
  void serve_while(F&& act) {
    std::atomic<bool> over = false;
    std::thread actor([&] {
      act();
      over = true;
    });
    while (!over) serve(5'000);
    actor.join();
    serve(20'000);
  }
  UniqueFd dial() const { return dial_until(listener.address().endpoint(), Traffic::kData, now_us() + 5'000'000); }
  std::string error_of_introduction(const SecretKey& with) const {
    try {
      introduce(dial(), with, bytes_of("me"), "the house", now_us() + 5'000'000);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }
};

bool is_closed_soon(int fd) {
  char byte;
  return wait_for_events(fd, POLLIN, now_us() + 5'000'000) && ::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

TEST(Door, lets_in_who_holds_the_key) {
  House house;
  std::optional<Authenticated> own;
  house.serve_while(
      [&] { own.emplace(introduce(house.dial(), house.key, bytes_of("me"), "the house", now_us() + 5'000'000)); });
  ASSERT_EQ(house.guests.size(), 1u);
  EXPECT_TRUE(house.guests[0].session_key == own->session_key);
  EXPECT_EQ(house.guests[0].payload.size(), 2u);
  EXPECT_EQ(house.guests[0].from, local_address(own->socket.get()).text());
  // What follows the handshake is for the owner.
  ASSERT_EQ(::send(own->socket.get(), "hello", 5, 0), 5);
  char text[8];
  ASSERT_TRUE(wait_for_events(house.guests[0].socket.get(), POLLIN, now_us() + 5'000'000));
  EXPECT_EQ(::recv(house.guests[0].socket.get(), text, sizeof text, 0), 5);
}

TEST(Door, another_key_is_told_on_both_sides) {
  House house;
  std::string error;
  house.serve_while([&] { error = house.error_of_introduction(make_secret_key()); });
  EXPECT_EQ(error.find("the house holds another key"), 0u) << error;
  ASSERT_EQ(house.refusals.size(), 1u);
  EXPECT_TRUE(contains(house.refusals[0], "127.0.0.1:") && contains(house.refusals[0], "holds another key"));
  EXPECT_TRUE(house.guests.empty());
}

TEST(Door, a_refusal_is_told_on_both_sides) {
  House house;
  house.answer = Admission::refusal("the world is full");
  std::string error;
  house.serve_while([&] { error = house.error_of_introduction(house.key); });
  EXPECT_EQ(error, "the house refuses: the world is full");
  ASSERT_EQ(house.refusals.size(), 1u);
  EXPECT_TRUE(contains(house.refusals[0], "was refused: the world is full"));
}

// It reads what a refused guest still sends: a close with unread bytes would take the reason back.
TEST(Door, another_version_is_told_before_the_connection_closes) {
  House house;
  std::string failure;
  house.serve_while([&] {
    const UniqueFd fd = house.dial();
    Handshake handshake = Handshake::dial(house.key, {}, 99);
    const std::string more(2000, 'x');
    ASSERT_GT(::send(fd.get(), handshake.unsent().data(), handshake.unsent().size(), 0), 0);
    handshake.sent(handshake.unsent().size());
    ASSERT_GT(::send(fd.get(), more.data(), more.size(), 0), 0);
    while (handshake.wanted() > 0) {
      std::byte byte;
      ASSERT_TRUE(wait_for_events(fd.get(), POLLIN, now_us() + 5'000'000));
      ASSERT_EQ(::recv(fd.get(), &byte, 1, MSG_DONTWAIT), 1);
      handshake.receive({&byte, 1});
    }
    failure = handshake.failure();
  });
  EXPECT_TRUE(contains(failure, "speaks version 1 of the protocol, this program version 99")) << failure;
  ASSERT_EQ(house.refusals.size(), 1u);
  EXPECT_TRUE(contains(house.refusals[0], "speaks version 99")) << house.refusals[0];
}

TEST(Door, who_stays_silent_is_dropped_after_two_seconds) {
  House house;
  const UniqueFd silent = house.dial(), half = house.dial();
  ASSERT_EQ(::send(half.get(), "OPRP", 4, 0), 4);
  const int64_t start_us = now_us();
  house.serve(1'500'000);
  char byte;
  EXPECT_EQ(::recv(silent.get(), &byte, 1, MSG_DONTWAIT), -1);  // not yet
  house.serve(700'000);
  EXPECT_TRUE(is_closed_soon(silent.get()));
  EXPECT_TRUE(is_closed_soon(half.get()));
  EXPECT_LT(now_us() - start_us, 4'000'000);
  ASSERT_EQ(house.refusals.size(), 1u);  // the silent one is no news
  EXPECT_TRUE(contains(house.refusals[0], "said nothing more")) << house.refusals[0];
}

TEST(Door, a_stranger_that_talks_byte_by_byte_gains_no_time) {
  House house;
  const UniqueFd slow = house.dial();
  const Handshake handshake = Handshake::dial(house.key, {});
  for (int i = 0; i < 24; ++i) {
    ::send(slow.get(), handshake.unsent().data() + i, 1, MSG_NOSIGNAL);
    house.serve(100'000);
  }
  EXPECT_TRUE(is_closed_soon(slow.get()));
}

TEST(Door, the_oldest_silent_one_makes_room) {
  House house;
  const UniqueFd speaks = house.dial();
  ASSERT_EQ(::send(speaks.get(), "OPRP", 4, 0), 4);
  house.serve(20'000);
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < Door::kMaxStrangers + 5; ++i) {
    silent.push_back(house.dial());
    house.serve(1'000);
  }
  house.serve(20'000);
  std::vector<pollfd> wanted;
  house.door.append_to(wanted);
  EXPECT_EQ(wanted.size(), 1 + Door::kMaxStrangers);
  for (size_t i = 0; i < 6; ++i) EXPECT_TRUE(is_closed_soon(silent[i].get())) << i;
  char byte;
  EXPECT_EQ(::recv(silent[6].get(), &byte, 1, MSG_DONTWAIT), -1);
  EXPECT_EQ(::recv(speaks.get(), &byte, 1, MSG_DONTWAIT), -1);
}

TEST(Door, serves_friends_among_five_hundred_strangers) {
  House house;
  int admitted = 0;
  house.serve_while([&] {
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 500; ++i) {
      strangers.push_back(house.dial());
      if (i % 2 == 0) ::send(strangers.back().get(), "\x16\x03\x01 whatever this is", 20, MSG_NOSIGNAL);
      if (i % 50 == 49 && house.error_of_introduction(house.key).empty()) ++admitted;
    }
  });
  EXPECT_EQ(admitted, 10);
  EXPECT_EQ(house.guests.size(), 10u);
}

// In a process of its own, which has few descriptors left.
TEST(Door, does_without_descriptors_for_a_while) {
  const pid_t child = ::fork();
  if (child == 0) {
    House house;
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 40; ++i) strangers.push_back(house.dial());
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(::dup(0)) + 10;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    house.serve(50'000);
    strangers.clear();
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    std::string error;
    house.serve_while([&] { error = house.error_of_introduction(house.key); });
    ::_exit(error.empty() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(Introduction, names_an_end_that_never_answers) {
  const Listener listener = Listener::open({"127.0.0.1", 0}, false, "");
  try {
    introduce(dial_until(listener.address().endpoint(), Traffic::kData, now_us() + 5'000'000), make_secret_key(), {},
              "the front at node-a:7000", now_us() + 200'000);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kLink);
    EXPECT_TRUE(contains(error.what(), "the front at node-a:7000 has not answered")) << error.what();
  }
}

TEST(Introduction, an_end_that_closes_may_be_tried_again) {
  const Listener listener = Listener::open({"127.0.0.1", 0}, false, "");
  Introduction introduction(dial_until(listener.address().endpoint(), Traffic::kData, now_us() + 5'000'000),
                            make_secret_key(), {});
  UniqueFd(::accept(listener.fd(), nullptr, nullptr)).reset();
  while (introduction.advance() == Handshake::State::kRunning) std::this_thread::yield();
  EXPECT_TRUE(contains(introduction.failure(), "closed the connection"));
  EXPECT_TRUE(introduction.try_again());
}

}  // namespace
}  // namespace coprime
