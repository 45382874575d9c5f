// Where ranks from elsewhere join a world: the front's open door. Owns the listener and a thread that serves it as long
// as the world lives, so that who comes late or wrongly is told why.
//
// A rank makes two connections: one for control, and one for the progress of its host. It may ask for a rank by number,
// else it gets the lowest free one. Refused, with the reason on both sides: another version, a rank beyond the world, a
// rank that is taken, a world that is whole. A rank that leaves before the world is whole frees its seat.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "transport/channel.h"
#include "transport/door.h"

namespace coprime {

struct JoinedRank {
  int rank = 0;
  UniqueFd control, progress;
  std::string from;  // its address, for messages
  std::string host;  // numeric, by which other hosts reach it; empty: on the front's host
};

class Reception {
 public:
  // A line for the operator: who was refused, who is missing.
  using Report = std::function<void(const std::string&)>;

  // Ranks [first, ranks) are to join at `socket`, a listening stream socket that people call `address`. With
  // same_user, a Unix socket's other end must run as this user.
  Reception(UniqueFd socket, std::string address, const SecretKey& key, int first, int ranks, bool same_user,
            Report report);
  ~Reception();
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  // All joined ranks, in order. Reports soon, and then every few seconds, who is missing; calls `check` often, which
  // may throw. Error(kLink) naming the missing ranks after timeout_ms.
  std::vector<JoinedRank> wait(int timeout_ms, const std::function<void()>& check);

 private:
  struct Seat {
    uint64_t ticket = 0;  // 0: free
    int64_t since_us = 0;
    JoinedRank rank;
    bool whole() const { return rank.control && rank.progress; }
  };
  void run();
  void report_refusals();
  Admission decide(std::span<const std::byte> payload, const std::string& from);
  Admission seat_rank(int wanted, uint64_t ticket, const std::string& from);
  Seat* seat_of(uint64_t ticket);
  void welcome(Authenticated guest);
  void free_seats_of_leavers();
  std::vector<int> missing() const;
  Seat& seat(int rank) { return seats_[static_cast<size_t>(rank - first_)]; }

  UniqueFd socket_, wake_;
  const std::string address_;
  const int first_, ranks_;
  const bool same_user_;
  const Report report_;
  Door door_;
  std::set<std::string> told_;  // reasons; of the thread

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Seat> seats_;
  bool closed_ = false;  // the world is whole
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace coprime
