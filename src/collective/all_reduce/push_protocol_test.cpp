// The protocol of push_protocol.h as a model: ranks of several threads each, whose stores arrive in any order (those of
// one writer to one word keep theirs), under a scheduler that interleaves their steps at random and lets ranks fall
// behind.
#include "collective/all_reduce/push_protocol.h"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "collective/all_reduce/rank_order_sum.h"
#include "collective/all_reduce/slab_layout.h"

namespace coprime {
namespace {

constexpr int kLanes = 4;  // words of 32 bits that a thread pushes at once
using Lanes = std::array<uint32_t, kLanes>;

struct Protocol {
  int halves = 2;
  bool own_first = false;  // instead of rank 0's term
  bool looks_at_all_lanes = true;
  bool renames = true;
  bool empties = true;
};

struct Outcome {
  int wrong = 0, differing = 0;  // vectors that are not the reference's; calls in which ranks differ
  bool stuck = false;
  bool good() const { return wrong == 0 && differing == 0 && !stuck; }
};

class Model {
 public:
  Model(int world, Protocol protocol, uint32_t first_call, int calls, uint32_t seed)
      : world_(world), protocol_(protocol), first_call_(first_call), random_(seed) {
    for (int call = 0; call < calls; ++call) {
      const int threads = 1 + below(3);
      std::vector<std::vector<Lanes>> vectors(static_cast<size_t>(world));
      for (auto& vector : vectors) {
        for (int t = 0; t < threads; ++t) {
          Lanes lanes;
          for (uint32_t& lane : lanes) lane = below(8) == 0 ? kEmptyWord : bf16_pair();
          vector.push_back(lanes);
        }
      }
      inputs_.push_back(std::move(vectors));
    }
    outputs_.assign(inputs_.size(), std::vector<std::vector<Lanes>>(static_cast<size_t>(world)));
    ranks_.resize(static_cast<size_t>(world));
    for (int rank = 0; rank < world; ++rank) start(rank);
  }

  Outcome run() {
    for (int64_t idle = 0; !all_done();) {
      if (below(64) == 0) slow_rank_ = below(world_ + 1);  // world_: none is slow
      const bool moved = below(2) == 0 ? deliver() : step();
      idle = moved ? 0 : idle + 1;
      if (idle > 100000) break;
    }
    Outcome outcome{.stuck = !all_done()};
    for (size_t call = 0; !outcome.stuck && call < inputs_.size(); ++call) {
      bool differ = false;
      for (int rank = 0; rank < world_; ++rank) {
        outcome.wrong += output(call, rank) != expected(call);
        differ |= output(call, rank) != output(call, 0);
      }
      outcome.differing += differ;
    }
    return outcome;
  }

 private:
  struct Word {
    int rank, half, sender, thread, lane;  // of receiver `rank`'s slab
    auto operator<=>(const Word&) const = default;
  };
  struct Thread {
    int pushed = 0;  // of its kLanes * (world - 1) stores
    bool done = false;
  };
  struct Rank {
    size_t call = 0;
    std::vector<Thread> threads;
  };

  int below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  uint32_t
  bf16_pair() {  // finite; of two sizes, the larger of which often cancel, so that the order of additions shows
    const auto one = [&] {
      return static_cast<uint32_t>((below(3) == 0 ? 0x3f00 + below(0x180) : 0x4c00 + below(2)) + 0x8000 * below(2));
    };
    return one() | one() << 16;
  }
  bool all_done() const {
    for (const Rank& rank : ranks_) {
      if (rank.call < inputs_.size()) return false;
    }
    return true;
  }
  void start(int rank) {
    Rank& r = ranks_[static_cast<size_t>(rank)];
    if (r.call == inputs_.size()) return;
    r.threads.assign(inputs_[r.call][0].size(), {});
    outputs_[r.call][static_cast<size_t>(rank)].resize(r.threads.size());
  }
  int half_of(size_t call) const {
    return static_cast<int>((first_call_ + static_cast<uint32_t>(call)) % static_cast<uint32_t>(protocol_.halves));
  }
  uint32_t read(const Word& word) const {
    const auto found = memory_.find(word);
    return found == memory_.end() ? kEmptyWord : found->second;
  }

  // A store in flight arrives. Stores of one writer to one word queue up; a word has one remote writer, and its owner,
  // whose stores have arrived before its next call begins.
  bool deliver() {
    if (flying_.empty()) return false;
    auto it = flying_.begin();
    std::advance(it, below(static_cast<int>(flying_.size())));
    arrive(it);
    return true;
  }
  using Flying = std::map<std::pair<Word, int>, std::deque<uint32_t>>;  // by word and writer
  Flying::iterator arrive(Flying::iterator it) {
    memory_[it->first.first] = it->second.front();
    it->second.pop_front();
    return it->second.empty() ? flying_.erase(it) : it;
  }
  void store(const Word& word, int writer, uint32_t value) { flying_[{word, writer}].push_back(value); }

  // One thread of a rank makes one step, if it can.
  bool step() {
    const int rank = below(world_);
    Rank& r = ranks_[static_cast<size_t>(rank)];
    if (r.call == inputs_.size() || (rank == slow_rank_ && below(16) != 0)) return false;
    const int thread = below(static_cast<int>(r.threads.size()));
    if (!step_thread(rank, thread)) return false;
    for (const Thread& t : r.threads) {
      if (!t.done) return true;
    }
    for (auto it = flying_.begin(); it != flying_.end();) {  // a kernel's end: what it stored at home is there
      it = it->first.first.rank == rank && it->first.second == rank ? arrive(it) : std::next(it);
    }
    ++r.call;
    start(rank);
    return true;
  }

  bool step_thread(int rank, int thread) {
    Rank& r = ranks_[static_cast<size_t>(rank)];
    Thread& t = r.threads[static_cast<size_t>(thread)];
    if (t.done) return false;
    const int half = half_of(r.call);
    const Lanes& own = inputs_[r.call][static_cast<size_t>(rank)][static_cast<size_t>(thread)];
    if (t.pushed < kLanes * (world_ - 1)) {
      const int index = t.pushed / kLanes, lane = t.pushed % kLanes;
      const int peer = index + (index >= rank ? 1 : 0);
      const uint32_t word = own[static_cast<size_t>(lane)];
      store({peer, half, sender_index(rank, peer), thread, lane}, rank, protocol_.renames ? sent_word(word) : word);
      ++t.pushed;
      return true;
    }
    std::vector<Lanes> terms(static_cast<size_t>(world_));
    for (int sender = 0; sender < world_; ++sender) {
      Lanes& term = terms[static_cast<size_t>(sender)];
      term = own;
      if (sender == rank) continue;
      for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t& word = term[static_cast<size_t>(lane)];
        word = read({rank, half, sender_index(sender, rank), thread, lane});
        if (word == kEmptyWord && (lane == 0 || protocol_.looks_at_all_lanes)) return false;
      }
    }
    if (protocol_.own_first) std::rotate(terms.begin(), terms.begin() + rank, terms.end());
    outputs_[r.call][static_cast<size_t>(rank)][static_cast<size_t>(thread)] = sum(terms);
    for (int sender = 0; protocol_.empties && sender < world_ - 1; ++sender) {
      for (int lane = 0; lane < kLanes; ++lane) store({rank, half, sender, thread, lane}, rank, kEmptyWord);
    }
    t.done = true;
    return true;
  }

  static Lanes sum(const std::vector<Lanes>& terms) {
    std::vector<const std::byte*> pointers;
    for (const Lanes& term : terms) pointers.push_back(reinterpret_cast<const std::byte*>(term.data()));
    Lanes out;
    sum_in_rank_order(DType::kBF16, pointers, 0, 2 * kLanes, reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  const std::vector<Lanes>& output(size_t call, int rank) const { return outputs_[call][static_cast<size_t>(rank)]; }
  std::vector<Lanes> expected(size_t call) const {
    std::vector<Lanes> out;
    for (size_t thread = 0; thread < inputs_[call][0].size(); ++thread) {
      std::vector<Lanes> terms;
      for (const auto& vector : inputs_[call]) terms.push_back(vector[thread]);
      out.push_back(sum(terms));
    }
    return out;
  }

  const int world_;
  const Protocol protocol_;
  const uint32_t first_call_;
  std::mt19937 random_;
  std::vector<std::vector<std::vector<Lanes>>> inputs_, outputs_;  // by call, rank, thread
  std::vector<Rank> ranks_;
  std::map<Word, uint32_t> memory_;
  Flying flying_;
  int slow_rank_ = -1;
};

Outcome run_model(int world, const Protocol& protocol, uint32_t seed, uint32_t first_call = 1) {
  return Model(world, protocol, first_call, 12, seed).run();
}

// How many of so many runs went wrong in any way.
int bad_runs(int world, const Protocol& protocol, uint32_t runs) {
  int bad = 0;
  for (uint32_t seed = 1; seed <= runs; ++seed) bad += !run_model(world, protocol, seed).good();
  return bad;
}

TEST(PushProtocol, every_interleaving_sums_in_rank_order_on_all_ranks) {
  for (int world = 2; world <= 4; ++world) {
    for (uint32_t seed = 1; seed <= 300; ++seed) {
      const Outcome outcome = run_model(world, {}, seed);
      EXPECT_TRUE(outcome.good()) << world << " ranks, seed " << seed << ": " << outcome.wrong << " wrong, "
                                  << outcome.differing << " differing" << (outcome.stuck ? ", stuck" : "");
    }
  }
}

TEST(PushProtocol, works_where_the_call_number_wraps_around) {
  for (uint32_t seed = 1; seed <= 50; ++seed) EXPECT_TRUE(run_model(3, {}, seed, 0xfffffffa).good()) << seed;
}

TEST(PushProtocol, one_half_alone_goes_wrong) { EXPECT_GT(bad_runs(3, {.halves = 1}, 50), 25); }

TEST(PushProtocol, three_ranks_that_begin_with_their_own_term_differ) {
  EXPECT_GT(bad_runs(3, {.own_first = true}, 20), 15);
  EXPECT_EQ(bad_runs(2, {.own_first = true}, 20), 0);  // two terms commute
}

TEST(PushProtocol, a_receiver_that_looks_at_one_word_of_four_goes_wrong) {
  EXPECT_GT(bad_runs(3, {.looks_at_all_lanes = false}, 50), 25);
}

TEST(PushProtocol, an_empty_word_that_is_sent_as_it_is_never_arrives) {
  EXPECT_GT(bad_runs(2, {.renames = false}, 20), 15);
}

TEST(PushProtocol, words_that_are_not_emptied_are_taken_for_the_next_but_one_call) {
  EXPECT_GT(bad_runs(2, {.empties = false}, 20), 15);
}

TEST(PushProtocol, the_two_words_are_no_numbers_in_any_type) {
  for (const uint32_t word : {kEmptyWord, kRenamedWord}) {
    EXPECT_TRUE(std::isnan(load_element(DType::kF32, reinterpret_cast<const std::byte*>(&word), 0)));
    for (int lane = 0; lane < 2; ++lane) {
      EXPECT_TRUE(std::isnan(load_element(DType::kF16, reinterpret_cast<const std::byte*>(&word), lane)));
      EXPECT_TRUE(std::isnan(load_element(DType::kBF16, reinterpret_cast<const std::byte*>(&word), lane)));
    }
  }
}

}  // namespace
}  // namespace coprime
