#include "attention/reduce_schedule.h"

#include <algorithm>
#include <bit>

#include "attention/ring_order.h"
#include "base/check.h"
#include "base/error.h"

namespace coprime::attention {
namespace {

constexpr int kLargestSide = 8;

// Collects messages; a receiver takes one a round.
class Rounds {
 public:
  explicit Rounds(ReduceSchedule& schedule)
      : schedule_(schedule), free_(static_cast<size_t>(schedule.mesh.size()), 1) {}

  // In the first round from `earliest` in which `to` receives nothing; returns the round after it.
  int send(int from, int to, int earliest) {
    const int round = std::max(earliest, free_[static_cast<size_t>(to)]);
    const Mesh mesh = schedule_.mesh;
    schedule_.messages.push_back(
        {round, from, to, mesh.toward(from, to), mesh.arrives_from(from, to), mesh.hops(from, to)});
    schedule_.rounds = std::max(schedule_.rounds, round);
    return free_[static_cast<size_t>(to)] = round + 1;
  }

 private:
  ReduceSchedule& schedule_;
  std::vector<int> free_;  // by place: the first round in which it can receive
};

// The places of `line`, which lie one hop apart, to line[centre]. The shorter arm comes first: its end is there sooner.
int converge(Rounds& rounds, const std::vector<int>& line, int centre, int earliest) {
  const auto arm = [&](int end, int step) {  // from the end of the line inwards
    int round = earliest;
    for (int i = end; i != centre; i += step)
      round = rounds.send(line[static_cast<size_t>(i)], line[static_cast<size_t>(i + step)], round);
    return round;
  };
  const int last = static_cast<int>(line.size()) - 1;
  const bool first_is_shorter = centre <= last - centre;
  const int one = first_is_shorter ? arm(0, 1) : arm(last, -1);
  const int other = first_is_shorter ? arm(last, -1) : arm(0, 1);
  return std::max(one, other);
}

std::vector<int> row_of(Mesh mesh, int row) {
  std::vector<int> line;
  for (int column = 0; column < mesh.columns; ++column) line.push_back(mesh.at(row, column));
  return line;
}
std::vector<int> column_of(Mesh mesh, int column) {
  std::vector<int> line;
  for (int row = 0; row < mesh.rows; ++row) line.push_back(mesh.at(row, column));
  return line;
}

void columns_then_row(ReduceSchedule& schedule) {
  Rounds rounds(schedule);
  const Mesh mesh = schedule.mesh;
  const int row = mesh.row(schedule.root), column = mesh.column(schedule.root);
  int next = 1;
  for (int i = 0; i < mesh.columns; ++i) next = std::max(next, converge(rounds, column_of(mesh, i), row, 1));
  converge(rounds, row_of(mesh, row), column, next);
}

void rows_then_column(ReduceSchedule& schedule) {
  Rounds rounds(schedule);
  const Mesh mesh = schedule.mesh;
  const int row = mesh.row(schedule.root), column = mesh.column(schedule.root);
  int next = 1;
  for (int i = 0; i < mesh.rows; ++i) next = std::max(next, converge(rounds, row_of(mesh, i), column, 1));
  converge(rounds, column_of(mesh, column), row, next);
}

void chain(ReduceSchedule& schedule) {
  std::vector<int> path = path_to(schedule.mesh, schedule.root);
  if (path.empty()) {  // none ends in the middle of a line: take one that ends at its corner
    schedule.root = 0;
    path = path_to(schedule.mesh, 0);
  }
  Rounds rounds(schedule);
  converge(rounds, path, static_cast<int>(path.size()) - 1, 1);
}

void ring(ReduceSchedule& schedule) {
  const RingOrder order = ring_order(schedule.mesh);
  const int size = schedule.mesh.size(), before = (size - 1) / 2;
  std::vector<int> line;  // the ring, cut opposite to the root
  for (int i = 0; i < size; ++i) {
    const int position = order.position[static_cast<size_t>(schedule.root)] + i - before + size;
    line.push_back(order.place[static_cast<size_t>(position % size)]);
  }
  Rounds rounds(schedule);
  converge(rounds, line, before, 1);
}

void star(ReduceSchedule& schedule) {
  const Mesh mesh = schedule.mesh;
  std::vector<int> others;
  for (int place = 0; place < mesh.size(); ++place)
    if (place != schedule.root) others.push_back(place);
  std::ranges::stable_sort(others, {}, [&](int place) { return mesh.hops(place, schedule.root); });
  Rounds rounds(schedule);
  for (const int place : others) rounds.send(place, schedule.root, 1);
}

}  // namespace

std::string_view name_of(ReduceTopology topology) {
  switch (topology) {
    case ReduceTopology::kTree:
      return "tree";
    case ReduceTopology::kCentreMesh:
      return "mesh";
    case ReduceTopology::kChain:
      return "chain";
    case ReduceTopology::kRing:
      return "ring";
    case ReduceTopology::kStar:
      break;
  }
  return "star";
}

ReducePart ReduceSchedule::part(int place) const {
  ReducePart part;
  for (const ReduceMessage& message : messages) {
    if (message.to == place) part.receives.push_back(message);
    if (message.from == place) part.send = message;
  }
  return part;
}

ReduceSchedule reduce_schedule(Mesh mesh, ReduceTopology topology) {
  if (mesh.rows < 1 || mesh.columns < 1 || mesh.rows > kLargestSide || mesh.columns > kLargestSide)
    fail(ErrorKind::kUsage, "a reduction over {}x{} places; expected 1x1 to {}x{}", mesh.rows, mesh.columns,
         kLargestSide, kLargestSide);
  ReduceSchedule schedule{.mesh = mesh, .root = mesh.centre()};
  switch (topology) {
    case ReduceTopology::kTree:
      columns_then_row(schedule);
      break;
    case ReduceTopology::kCentreMesh:
      rows_then_column(schedule);
      break;
    case ReduceTopology::kChain:
      chain(schedule);
      break;
    case ReduceTopology::kRing:
      ring(schedule);
      break;
    case ReduceTopology::kStar:
      star(schedule);
      break;
  }
  std::ranges::sort(schedule.messages, {}, [](const ReduceMessage& m) { return std::pair(m.round, m.from); });
  COPRIME_CHECK(schedule.messages.size() + 1 == static_cast<size_t>(mesh.size()), "{} messages of {} places",
                schedule.messages.size(), mesh.size());
  return schedule;
}

int64_t TwoLevelReduce::triplets() const {
  return static_cast<int64_t>(within.messages.size()) * across.mesh.size() +
         static_cast<int64_t>(across.messages.size());
}

TwoLevelReduce two_level_reduce(Mesh pes, ReduceTopology within, Mesh cubes, ReduceTopology across) {
  return {reduce_schedule(pes, within), reduce_schedule(cubes, across)};
}

}  // namespace coprime::attention
