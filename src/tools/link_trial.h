// One rank's part in measuring the links of a world: the same code for every link and host, over an exchange that was
// joined for it with link_schedule(). All members of a trial run the same LinkTrial; the world's other ranks take no
// part.
//
// Before every timed transfer the members line up with a small gate; after it each of them compares what it got, float
// by float, with what the seed says. Both are outside of the times.
//
// A pair trial (two members) moves vectors one way from the first, one way from the second, there and back, and in
// streams of pushes one way, the other, and both at once: copied into the slot, published, and copied out by the other
// end. A gate trial (any number of members) passes the gates of an engine: copied in, published, awaited, added in rank
// order; also by owners (each adds a part, then all gather), and beside them, in turns, the bare exchange.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gate/exchange.h"
#include "tools/bare_exchange.h"

namespace coprime {

struct LinkTrial {
  enum class Kind : uint8_t { kPair, kGate };
  Kind kind = Kind::kPair;
  int64_t bytes = 16384;  // of a vector, a multiple of 4
  int repeat = 1;         // transfers of each sort
  uint32_t seed = 1;
  std::vector<int> members;  // ranks, in rising order, two at least

  int index_of(int rank) const;  // its place among the members; -1: it is none
};

inline constexpr int kStreamPushes = 4;  // of a stream

// The gates of one repetition, in their order.
GateSchedule link_schedule(const LinkTrial& trial);

// What one rank saw, by repetition. `begin` and `end` are this host's steady clock, the others durations; all in
// nanoseconds.
struct LinkTimes {
  std::vector<int64_t> first_begin, first_end, second_begin, second_end;  // one way, from the first and the second rank
  std::vector<int64_t> round_trip;                                        // as the first rank sees it
  std::vector<int64_t> stream_first, stream_second, stream_both;          // of kStreamPushes
  std::vector<int64_t> gate, owners, bare;
};

struct TrialReport {
  LinkTimes times;
  std::string link;                  // what joined this rank to the first other member: "shm", "tcp", ...
  int64_t transfers = 0, wrong = 0;  // vectors that were compared; those that differed
  std::string failure;               // empty: the trial went through
  bool timed_out = false;            // it waited for the whole time-out
};

struct LinkEnds {
  Exchange& exchange;
  const ProgressPage& progress;  // counts what is checked, so that a rank that compares long vectors is no dead one
  BareExchange* bare = nullptr;  // null: the floor is not measured
  int timeout_ms = 0;            // the exchange's
};

// What a link does, a failure too, is in the report.
TrialReport run_link_trial(const LinkTrial& trial, const LinkEnds& ends);

// Error(kInternal) for text that is none.
std::string to_json(const LinkTrial& trial);
LinkTrial link_trial_from_json(std::string_view text);
std::string to_json(const TrialReport& report);
TrialReport trial_report_from_json(std::string_view text);

}  // namespace coprime
