#include "tools/link_trial.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/clock.h"

namespace coprime {
namespace {

constexpr size_t kLineUpBytes = 64;
constexpr size_t kCountedFloats = 1 << 18;  // compared between two counts of progress

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Element i of the vector of a seed: a whole number below 4096, so that sums of all ranks are exact in any order.
float element(uint32_t seed, size_t i) {
  return static_cast<float>((static_cast<uint32_t>(i) * 2654435761u + seed * 40503u) >> 20);
}

class LinkRun {
 public:
  LinkRun(const LinkTrial& trial, const LinkEnds& ends, TrialReport& report)
      : trial_(trial),
        ends_(ends),
        exchange_(ends.exchange),
        report_(report),
        times_(report.times),
        rank_(exchange_.rank()),
        ranks_(exchange_.ranks()),
        bytes_(static_cast<size_t>(trial.bytes)),
        count_(bytes_ / sizeof(float)),
        in_(static_cast<size_t>(kStreamPushes) * count_),
        out_(static_cast<size_t>(kStreamPushes) * count_) {}

  void pair() {
    COPRIME_CHECK(ranks_ == 2, "{} ranks in a trial of a pair", ranks_);
    for (int i = 0; i < trial_.repeat; ++i) {
      begin_repetition();
      one_way(0, times_.first_begin, times_.first_end);
      one_way(1, times_.second_begin, times_.second_end);
      round_trip();
      times_.stream_first.push_back(stream({kStreamPushes, 0}));
      times_.stream_second.push_back(stream({0, kStreamPushes}));
      times_.stream_both.push_back(stream({kStreamPushes, kStreamPushes}));
    }
  }

  void gates() {
    for (int i = 0; i < trial_.repeat; ++i) {
      begin_repetition();
      times_.gate.push_back(timed_sum([this] { push_to_all(); }));
      times_.owners.push_back(timed_sum([this] { sum_by_owners(); }));
      if (ends_.bare == nullptr) {
        line_up();  // every repetition has the same gates
        continue;
      }
      times_.bare.push_back(timed_sum([this] { ends_.bare->run(in_.data(), out_.data(), count_); }));
    }
  }

  bool waited_for_all_the_timeout() const { return now_us() - published_us_ >= int64_t{ends_.timeout_ms} * 1000; }

 private:
  void begin_repetition() {
    exchange_.begin_step(1, 1);
    next_entry_ = 0;
  }

  // ---- gates

  void publish(size_t bytes, std::span<const size_t> incoming) {
    published_us_ = now_us();
    exchange_.publish(next_entry_++, bytes, incoming);
  }
  std::span<const size_t> all_alike(size_t bytes) {
    std::fill_n(incoming_.begin(), ranks_, bytes);
    return {incoming_.data(), static_cast<size_t>(ranks_)};
  }

  void line_up() {
    exchange_.out(kLineUpBytes);
    publish(kLineUpBytes, all_alike(kLineUpBytes));
    exchange_.wait();
    exchange_.release();
  }

  // A gate of two ranks in which `sends` says who sends vector `index`.
  void push(std::array<bool, 2> sends, int index) {
    const auto own = static_cast<size_t>(rank_), other = 1 - own;
    const std::span<std::byte> slot = exchange_.out(bytes_);
    if (sends[own]) std::memcpy(slot.data(), vector(in_, index), bytes_);
    publish(sends[own] ? bytes_ : 0, all_alike(sends[other] ? bytes_ : 0));
    const auto views = exchange_.wait();
    if (sends[other]) std::memcpy(vector(out_, index), views[other].data(), bytes_);
    exchange_.release();
  }

  void push_to_all() {
    std::memcpy(exchange_.out(bytes_).data(), in_.data(), bytes_);
    publish(bytes_, all_alike(bytes_));
    const auto views = exchange_.wait();
    for (size_t r = 0; r < views.size(); ++r) terms_[r] = reinterpret_cast<const float*>(views[r].data());
    add_in_rank_order({terms_.data(), views.size()}, out_.data(), count_);
    exchange_.release();
  }

  void sum_by_owners() {
    std::memcpy(exchange_.out(bytes_).data(), in_.data(), bytes_);
    std::array<size_t, kMaxRanks> ends;
    for (int r = 0; r < ranks_; ++r) ends[static_cast<size_t>(r)] = first_of(r + 1) * sizeof(float);
    const size_t own = first_of(rank_ + 1) - first_of(rank_);
    published_us_ = now_us();
    exchange_.scatter(next_entry_++, {ends.data(), static_cast<size_t>(ranks_)}, all_alike(own * sizeof(float)));
    auto views = exchange_.wait();
    for (size_t r = 0; r < views.size(); ++r) terms_[r] = reinterpret_cast<const float*>(views[r].data());
    auto* const sums = reinterpret_cast<float*>(exchange_.out(own * sizeof(float)).data());
    add_in_rank_order({terms_.data(), views.size()}, sums, own);
    exchange_.release();

    for (int r = 0; r < ranks_; ++r)
      incoming_[static_cast<size_t>(r)] = (first_of(r + 1) - first_of(r)) * sizeof(float);
    publish(own * sizeof(float), {incoming_.data(), static_cast<size_t>(ranks_)});
    views = exchange_.wait();
    for (int r = 0; r < ranks_; ++r) {
      const auto& view = views[static_cast<size_t>(r)];
      std::memcpy(out_.data() + first_of(r), view.data(), view.size());
    }
    exchange_.release();
  }
  size_t first_of(int owner) const { return count_ * static_cast<size_t>(owner) / static_cast<size_t>(ranks_); }

  // ---- what is timed

  void one_way(int from, std::vector<int64_t>& begins, std::vector<int64_t>& ends) {
    const std::array<bool, 2> sends{from == 0, from == 1};
    next_vectors(1);
    line_up();
    begins.push_back(now_ns());
    push(sends, 0);
    ends.push_back(now_ns());
    if (rank_ != from) check_vectors(1);
  }

  void round_trip() {
    next_vectors(1);
    line_up();
    const int64_t begin = now_ns();
    push({true, false}, 0);
    push({false, true}, 0);
    times_.round_trip.push_back(now_ns() - begin);
    check_vectors(1);
  }

  int64_t stream(std::array<int, 2> pushes) {
    next_vectors(kStreamPushes);
    line_up();
    const int64_t begin = now_ns();
    for (int i = 0; i < kStreamPushes; ++i) push({i < pushes[0], i < pushes[1]}, i);
    const int64_t time = now_ns() - begin;
    if (pushes[static_cast<size_t>(1 - rank_)] > 0) check_vectors(kStreamPushes);
    return time;
  }

  template <class Fn>
  int64_t timed_sum(const Fn& exchange) {
    next_vectors(1);
    line_up();
    const int64_t begin = now_ns();
    exchange();
    const int64_t time = now_ns() - begin;
    check_sum();
    return time;
  }

  // ---- contents

  // Each rank's vectors of each transfer have a seed of their own.
  uint32_t seed_of(int rank, int index) const {
    return trial_.seed + transfer_ * 97u + static_cast<uint32_t>(rank) * 31u + static_cast<uint32_t>(index);
  }
  float* vector(std::vector<float>& vectors, int index) { return vectors.data() + static_cast<size_t>(index) * count_; }

  void next_vectors(int vectors) {
    ++transfer_;
    for (int index = 0; index < vectors; ++index) {
      float* const to = vector(in_, index);
      in_parts([&](size_t i) { to[i] = element(seed_of(rank_, index), i); });
    }
    std::fill_n(out_.begin(), static_cast<size_t>(vectors) * count_, -1.0f);  // nothing of an earlier transfer
  }

  void check_vectors(int vectors) {
    for (int index = 0; index < vectors; ++index) {
      const float* const got = vector(out_, index);
      bool good = true;
      in_parts([&](size_t i) { good = good && got[i] == element(seed_of(1 - rank_, index), i); });
      count_transfer(good);
    }
  }

  void check_sum() {
    bool good = true;
    in_parts([&](size_t i) {
      float sum = 0;
      for (int r = 0; r < ranks_; ++r) sum += element(seed_of(r, 0), i);
      good = good && out_[i] == sum;
    });
    count_transfer(good);
  }

  void count_transfer(bool good) {
    ++report_.transfers;
    if (!good) ++report_.wrong;
  }

  template <class Fn>
  void in_parts(const Fn& each) {
    for (size_t begin = 0; begin < count_; begin += kCountedFloats) {
      const size_t end = std::min(count_, begin + kCountedFloats);
      for (size_t i = begin; i < end; ++i) each(i);
      ends_.progress.advance(rank_);
    }
  }

  const LinkTrial& trial_;
  const LinkEnds& ends_;
  Exchange& exchange_;
  TrialReport& report_;
  LinkTimes& times_;
  const int rank_, ranks_;
  const size_t bytes_, count_;
  std::vector<float> in_, out_;  // kStreamPushes vectors
  std::array<const float*, kMaxRanks> terms_ = {};
  std::array<size_t, kMaxRanks> incoming_ = {};
  uint32_t transfer_ = 0;
  int next_entry_ = 0;
  int64_t published_us_ = 0;
};

// One list of fields for both directions.
template <class Field, class Report>
void visit(Field&& field, Report& report) {
  auto& times = report.times;
  field("first_begin", times.first_begin);
  field("first_end", times.first_end);
  field("second_begin", times.second_begin);
  field("second_end", times.second_end);
  field("round_trip", times.round_trip);
  field("stream_first", times.stream_first);
  field("stream_second", times.stream_second);
  field("stream_both", times.stream_both);
  field("gate", times.gate);
  field("owners", times.owners);
  field("bare", times.bare);
  field("link", report.link);
  field("transfers", report.transfers);
  field("wrong", report.wrong);
  field("failure", report.failure);
  field("timed_out", report.timed_out);
}

}  // namespace

GateSchedule link_schedule(const LinkTrial& trial) {
  GateSchedule schedule;
  const auto add = [&](int64_t bytes, int gates) {
    schedule.push_back({GateKind::kFfn, static_cast<int>(schedule.size()), kLineUpBytes, 1});
    for (int i = 0; i < gates; ++i)
      schedule.push_back({GateKind::kFfn, static_cast<int>(schedule.size()), std::max<int64_t>(bytes, 4), 1});
  };
  if (trial.kind == LinkTrial::Kind::kPair) {
    for (const int gates : {1, 1, 2, kStreamPushes, kStreamPushes, kStreamPushes}) add(trial.bytes, gates);
  } else {
    for (const int gates : {1, 2, 0}) add(trial.bytes, gates);
  }
  return schedule;
}

TrialReport run_link_trial(const LinkTrial& trial, const LinkEnds& ends) {
  COPRIME_CHECK(trial.bytes > 0 && trial.bytes % 4 == 0 && trial.repeat > 0, "{} bytes, {} times", trial.bytes,
                trial.repeat);
  TrialReport report;
  report.link = ends.exchange.link(ends.exchange.rank() == 0 ? 1 : 0);
  LinkRun run(trial, ends, report);
  try {
    trial.kind == LinkTrial::Kind::kPair ? run.pair() : run.gates();
  } catch (const Error& error) {
    report.failure = error.what();
    report.timed_out = error.kind() == ErrorKind::kLink && run.waited_for_all_the_timeout();
  }
  return report;
}

std::string to_json(const TrialReport& report) {
  nlohmann::json object;
  visit([&](const char* name, const auto& value) { object[name] = value; }, report);
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

TrialReport trial_report_from_json(std::string_view text) {
  TrialReport report;
  try {
    const auto object = nlohmann::json::parse(text);
    visit([&](const char* name, auto& value) { object.at(name).get_to(value); }, report);
  } catch (const nlohmann::json::exception& error) {
    fail(ErrorKind::kInternal, "a link report is not what it should be: {}", error.what());
  }
  return report;
}

}  // namespace coprime
