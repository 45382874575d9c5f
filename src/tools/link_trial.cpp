#include "tools/link_trial.h"

#include <algorithm>

#include "base/check.h"
#include "base/clock.h"
#include "engine/json_fields.h"

namespace coprime {
namespace {

constexpr size_t kLineUpBytes = 64;
constexpr size_t kCountedFloats = 1 << 18;  // compared between two counts of progress

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
        own_(trial.index_of(rank_)),
        members_(static_cast<int>(trial.members.size())),
        bytes_(static_cast<size_t>(trial.bytes)),
        count_(bytes_ / sizeof(float)),
        in_(static_cast<size_t>(kStreamPushes) * count_),
        out_(static_cast<size_t>(kStreamPushes) * count_) {}

  void pair() {
    COPRIME_CHECK(members_ == 2, "{} ranks in a trial of a pair", members_);
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
    for (const int member : trial_.members) incoming_[static_cast<size_t>(member)] = bytes;
    return {incoming_.data(), static_cast<size_t>(exchange_.ranks())};
  }

  void line_up() {
    exchange_.out(kLineUpBytes);
    publish(kLineUpBytes, all_alike(kLineUpBytes));
    exchange_.wait();
    exchange_.release();
  }

  // A gate of two ranks in which `sends` says who sends vector `index`.
  void push(std::array<bool, 2> sends, int index) {
    const auto own = static_cast<size_t>(own_), other = 1 - own;
    const std::span<std::byte> slot = exchange_.out(bytes_);
    if (sends[own]) std::memcpy(slot.data(), vector(in_, index), bytes_);
    publish(sends[own] ? bytes_ : 0, all_alike(sends[other] ? bytes_ : 0));
    const auto views = exchange_.wait();
    if (sends[other]) std::memcpy(vector(out_, index), of_member(views, 1 - own_).data(), bytes_);
    exchange_.release();
  }

  using Views = std::span<const std::span<const std::byte>>;
  std::span<const std::byte> of_member(Views views, int index) const {
    return views[static_cast<size_t>(trial_.members[static_cast<size_t>(index)])];
  }
  void add_views(Views views, float* sum, size_t count) {
    for (int m = 0; m < members_; ++m)
      terms_[static_cast<size_t>(m)] = reinterpret_cast<const float*>(of_member(views, m).data());
    add_in_rank_order({terms_.data(), static_cast<size_t>(members_)}, sum, count);
  }

  void push_to_all() {
    std::memcpy(exchange_.out(bytes_).data(), in_.data(), bytes_);
    publish(bytes_, all_alike(bytes_));
    add_views(exchange_.wait(), out_.data(), count_);
    exchange_.release();
  }

  void sum_by_owners() {
    std::memcpy(exchange_.out(bytes_).data(), in_.data(), bytes_);
    std::array<size_t, kMaxRanks> ends{};  // who is no member owns nothing
    size_t end = 0;
    for (int r = 0; r < exchange_.ranks(); ++r) {
      if (const int index = trial_.index_of(r); index >= 0) end = first_of(index + 1) * sizeof(float);
      ends[static_cast<size_t>(r)] = end;
    }
    const size_t own = first_of(own_ + 1) - first_of(own_);
    published_us_ = now_us();
    exchange_.scatter(next_entry_++, {ends.data(), static_cast<size_t>(exchange_.ranks())},
                      all_alike(own * sizeof(float)));
    auto views = exchange_.wait();
    add_views(views, reinterpret_cast<float*>(exchange_.out(own * sizeof(float)).data()), own);
    exchange_.release();

    for (int m = 0; m < members_; ++m)
      incoming_[static_cast<size_t>(trial_.members[static_cast<size_t>(m)])] =
          (first_of(m + 1) - first_of(m)) * sizeof(float);
    publish(own * sizeof(float), {incoming_.data(), static_cast<size_t>(exchange_.ranks())});
    views = exchange_.wait();
    for (int m = 0; m < members_; ++m) {
      const auto view = of_member(views, m);
      std::memcpy(out_.data() + first_of(m), view.data(), view.size());
    }
    exchange_.release();
  }
  size_t first_of(int owner) const { return count_ * static_cast<size_t>(owner) / static_cast<size_t>(members_); }

  // ---- what is timed

  void one_way(int from, std::vector<int64_t>& begins, std::vector<int64_t>& ends) {
    const std::array<bool, 2> sends{from == 0, from == 1};
    next_vectors(1);
    line_up();
    begins.push_back(now_ns());
    push(sends, 0);
    ends.push_back(now_ns());
    if (own_ != from) check_vectors(1);
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
    if (pushes[static_cast<size_t>(1 - own_)] > 0) check_vectors(kStreamPushes);
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

  // Each member's vectors of each transfer have a seed of their own.
  uint32_t seed_of(int member, int index) const {
    return trial_.seed + transfer_ * 97u + static_cast<uint32_t>(member) * 31u + static_cast<uint32_t>(index);
  }
  float* vector(std::vector<float>& vectors, int index) { return vectors.data() + static_cast<size_t>(index) * count_; }

  void next_vectors(int vectors) {
    ++transfer_;
    for (int index = 0; index < vectors; ++index) {
      float* const to = vector(in_, index);
      in_parts([&](size_t i) { to[i] = element(seed_of(own_, index), i); });
    }
    std::fill_n(out_.begin(), static_cast<size_t>(vectors) * count_, -1.0f);  // nothing of an earlier transfer
  }

  void check_vectors(int vectors) {
    for (int index = 0; index < vectors; ++index) {
      const float* const got = vector(out_, index);
      bool good = true;
      in_parts([&](size_t i) { good = good && got[i] == element(seed_of(1 - own_, index), i); });
      count_transfer(good);
    }
  }

  void check_sum() {
    bool good = true;
    in_parts([&](size_t i) {
      float sum = 0;
      for (int m = 0; m < members_; ++m) sum += element(seed_of(m, 0), i);
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
  const int rank_, own_, members_;  // this rank, its place among the members, their number
  const size_t bytes_, count_;
  std::vector<float> in_, out_;  // kStreamPushes vectors
  std::array<const float*, kMaxRanks> terms_ = {};
  std::array<size_t, kMaxRanks> incoming_ = {};
  uint32_t transfer_ = 0;
  int next_entry_ = 0;
  int64_t published_us_ = 0;
};

}  // namespace

template <class Field, class T>
void visit(Field&& field, T& trial) requires std::same_as<std::remove_const_t<T>, LinkTrial> {
  field("kind", trial.kind);
  field("bytes", trial.bytes);
  field("repeat", trial.repeat);
  field("seed", trial.seed);
  field("members", trial.members);
}

template <class Field, class T>
void visit(Field&& field, T& report) requires std::same_as<std::remove_const_t<T>, TrialReport> {
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

int LinkTrial::index_of(int rank) const {
  const auto at = std::ranges::find(members, rank);
  return at == members.end() ? -1 : static_cast<int>(at - members.begin());
}

GateSchedule link_schedule(const LinkTrial& trial) {
  GateSchedule schedule;
  const auto add = [&](int64_t bytes, int gates) {
    schedule.push_back({GateKind::kTrial, static_cast<int>(schedule.size()), kLineUpBytes, 1});
    for (int i = 0; i < gates; ++i)
      schedule.push_back({GateKind::kTrial, static_cast<int>(schedule.size()), std::max<int64_t>(bytes, 4), 1});
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
  const int own = trial.index_of(ends.exchange.rank());
  COPRIME_CHECK(own >= 0 && trial.members.size() > 1, "rank {} among {} members", ends.exchange.rank(),
                trial.members.size());
  TrialReport report;
  report.link = ends.exchange.link(trial.members[own == 0 ? 1 : 0]);
  LinkRun run(trial, ends, report);
  try {
    trial.kind == LinkTrial::Kind::kPair ? run.pair() : run.gates();
  } catch (const Error& error) {
    report.failure = error.what();
    report.timed_out = error.kind() == ErrorKind::kLink && run.waited_for_all_the_timeout();
  }
  return report;
}

std::string to_json(const LinkTrial& trial) { return fields_to_json(trial); }
LinkTrial link_trial_from_json(std::string_view text) { return fields_from_json<LinkTrial>(text); }
std::string to_json(const TrialReport& report) { return fields_to_json(report); }
TrialReport trial_report_from_json(std::string_view text) { return fields_from_json<TrialReport>(text); }

}  // namespace coprime
