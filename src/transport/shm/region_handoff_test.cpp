#include "transport/shm/region_handoff.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include "base/clock.h"
#include "transport/host_identity.h"
#include "transport/shm/window.h"

namespace coprime {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

struct Group {
  WorldId world = make_world_id();
  SecretKey key = make_secret_key();
  std::vector<int> ranks;
  size_t slot_bytes = 4096;

  Membership member(int rank) const { return {rank, 8, world, key, 1}; }
  SharedRegion share(int rank, int timeout_ms = 10'000) const {
    return share_region(member(rank), ranks, slot_bytes, timeout_ms);
  }
  // Of all ranks, each in a thread of its own, in the order of `ranks`.
  std::vector<SharedRegion> share_all(int timeout_ms = 10'000) const {
    std::vector<SharedRegion> results(ranks.size());
    std::vector<std::thread> threads;
    for (size_t place = 0; place < ranks.size(); ++place)
      threads.emplace_back([&, place] { results[place] = share(ranks[place], timeout_ms); });
    for (std::thread& thread : threads) thread.join();
    return results;
  }
};

TEST(RegionHandoff, all_members_get_the_same_memory) {
  for (const std::vector<int>& ranks : {std::vector<int>{0, 1}, {1, 3, 6}, {0, 1, 2, 3, 4, 5, 6, 7}}) {
    const Group group{.ranks = ranks};
    const std::vector<SharedRegion> shared = group.share_all();
    for (size_t place = 0; place < ranks.size(); ++place) {
      ASSERT_TRUE(shared[place].region != nullptr) << shared[place].failure;
      EXPECT_EQ(shared[place].index, static_cast<int>(place));
      EXPECT_EQ(shared[place].region->ranks(), static_cast<int>(ranks.size()));
      EXPECT_GE(shared[place].region->slot_bytes(), group.slot_bytes);
      shared[place].region->slot(static_cast<int>(place), 0)[0] = static_cast<std::byte>(place + 1);
    }
    for (const SharedRegion& one : shared) {
      for (size_t place = 0; place < ranks.size(); ++place)
        EXPECT_EQ(one.region->slot(static_cast<int>(place), 0)[0], static_cast<std::byte>(place + 1));
    }
  }
}

TEST(RegionHandoff, processes_exchange_over_what_they_got) {
  const Group group{.ranks = {2, 5}};
  const pid_t child = ::fork();
  const auto exchange = [&](int rank) {
    const SharedRegion shared = group.share(rank);
    if (!shared.region) return false;
    Window window(shared.region, shared.index);
    const int peer = 1 - shared.index;
    for (uint64_t sequence = 1; sequence <= 1000; ++sequence) {
      window.slot(sequence)[0] = static_cast<std::byte>(sequence + static_cast<uint64_t>(shared.index));
      window.publish(sequence);
      while (!window.seen(peer, sequence)) window.sleep(sequence, 100'000);
      if (window.peer_slot(peer, sequence)[0] != static_cast<std::byte>(sequence + static_cast<uint64_t>(peer)))
        return false;
    }
    return true;
  };
  if (child == 0) ::_exit(exchange(5) ? 0 : 1);
  EXPECT_TRUE(exchange(2));
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

TEST(RegionHandoff, members_may_come_before_the_owner) {
  const Group group{.ranks = {0, 1}};
  SharedRegion member;
  std::thread early([&] { member = group.share(1); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_TRUE(group.share(0).region != nullptr);
  early.join();
  EXPECT_TRUE(member.region != nullptr) << member.failure;
}

TEST(RegionHandoff, all_fall_back_when_one_member_does_not_come) {
  const Group group{.ranks = {0, 1, 2}};
  std::array<SharedRegion, 2> shared;
  std::thread other([&] { shared[1] = group.share(1, 400); });
  shared[0] = group.share(0, 400);
  other.join();
  for (const SharedRegion& one : shared) {
    EXPECT_TRUE(one.region == nullptr);
    EXPECT_TRUE(contains(one.failure, "rank 2 did not fetch the shared window within 400 ms")) << one.failure;
  }
}

TEST(RegionHandoff, an_owner_that_does_not_come_is_named) {
  const Group group{.ranks = {0, 1}};
  const int64_t start_us = now_us();
  const SharedRegion shared = group.share(1, 300);
  EXPECT_TRUE(shared.region == nullptr);
  EXPECT_TRUE(contains(shared.failure, "rank 0's Unix socket cannot be reached")) << shared.failure;
  EXPECT_LT(now_us() - start_us, 5'000'000);
}

TEST(RegionHandoff, another_key_finds_no_socket) {
  const Group group{.ranks = {0, 1}};
  Group other = group;
  other.key = make_secret_key();
  SharedRegion stranger;
  std::thread intruder([&] { stranger = other.share(1, 400); });
  EXPECT_TRUE(group.share(0, 400).region == nullptr);
  intruder.join();
  EXPECT_TRUE(stranger.region == nullptr);
}

TEST(RegionHandoff, other_sizes_and_other_groups_are_refused) {
  const Group group{.ranks = {0, 1}};
  Group larger = group, crowd = group;
  larger.slot_bytes = 8192;
  crowd.ranks = {0, 1, 2};
  for (const Group& other : {larger, crowd}) {
    SharedRegion stranger;
    std::thread member([&] { stranger = other.share(1, 500); });
    EXPECT_TRUE(group.share(0, 500).region == nullptr);
    member.join();
    EXPECT_TRUE(stranger.region == nullptr);
    EXPECT_TRUE(contains(stranger.failure, "rank 1 is no member of the group of rank 0")) << stranger.failure;
  }
}

TEST(RegionHandoff, memory_that_cannot_be_had_is_told_to_all) {
  Group group{.ranks = {0, 1}};
  group.slot_bytes = size_t{1} << 58;
  for (const SharedRegion& one : group.share_all(5'000)) {
    EXPECT_TRUE(one.region == nullptr);
    EXPECT_TRUE(contains(one.failure, "the shared window")) << one.failure;
  }
}

TEST(RegionHandoff, a_member_that_dies_on_the_way_makes_all_fall_back) {
  const Group group{.ranks = {0, 1, 2}};
  // Rank 2 proves itself, and dies before it has told whether it got the window: as a process that is killed.
  const pid_t child = ::fork();
  if (child == 0) {
    std::thread([&] {
      ::usleep(150'000);
      ::_exit(0);
    }).detach();
    group.share(2, 10'000);
    ::pause();
  }
  std::array<SharedRegion, 2> shared;
  std::thread owner([&] {
    ::usleep(50'000);
    shared[0] = group.share(0, 1'000);
  });
  std::thread late([&] {
    ::usleep(300'000);
    shared[1] = group.share(1, 1'000);
  });
  owner.join();
  late.join();
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(shared[0].region == nullptr, shared[1].region == nullptr) << shared[0].failure << shared[1].failure;
}

TEST(HostIdentity, is_the_same_for_processes_that_share_kernel_and_network) {
  const std::string own = host_identity();
  EXPECT_EQ(own, host_identity());
  EXPECT_TRUE(contains(own, "/"));
  EXPECT_FALSE(contains(own, "unknown"));
}

TEST(HostIdentity, that_cannot_be_told_equals_none) { EXPECT_NE(host_identity("/nowhere"), host_identity("/nowhere")); }

// A container with a network of its own: another identity, and the socket is out of reach. Needs the right to make one.
TEST(HostIdentity, another_network_namespace_is_another_host) {
  const Group group{.ranks = {0, 1}};
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(77);
    const std::string identity = host_identity();
    ssize_t unused = ::write(ends[1], identity.data(), identity.size());
    (void)unused;
    const SharedRegion shared = group.share(1, 300);
    ::_exit(shared.region == nullptr && contains(shared.failure, "separate containers") ? 0 : 1);
  }
  const SharedRegion own = group.share(0, 500);
  int status = -1;
  ::waitpid(child, &status, 0);
  ASSERT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 77) << "no right to make a network namespace: run as root";
  char text[256] = {};
  EXPECT_GT(::read(ends[0], text, sizeof text - 1), 0);
  EXPECT_NE(std::string(text), host_identity());
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(contains(own.failure, "rank 1 did not fetch the shared window")) << own.failure;
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace coprime
