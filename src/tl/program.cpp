#include "tl/program.h"

#include <algorithm>
#include <cmath>

#include "attention/cube_groups.h"
#include "attention/kv_placement.h"
#include "base/error.h"

namespace coprime::tl {
namespace {

using attention::CubeGroups;
using attention::KvPlacement;
using attention::RingOrder;

ReduceLevel reduce_level(const attention::ReduceSchedule& schedule, int place, Level level, const auto& number_of) {
  const attention::ReducePart part = schedule.part(place);
  ReduceLevel result;
  for (const attention::ReduceMessage& message : part.receives)
    result.children.push_back({level, number_of(message.from)});
  result.root = !part.send;
  if (part.send) result.parent = {level, number_of(part.send->to)};
  return result;
}

class Planner {
 public:
  Planner(const Places& places, const LaunchSpec& spec) : places_(places), spec_(spec) {}

  Launch make() {
    check();
    switch (spec_.kernel) {
      case Kernel::kDecode:
      case Kernel::kBlockingDot:
      case Kernel::kHeadPacking:
        return decode_launch();
      case Kernel::kFanOut:
        return fan_out_launch();
      case Kernel::kPrefill:
        return prefill_launch();
      case Kernel::kKvFanOut:
        return kv_fan_out_launch();
      case Kernel::kDecodeShort:
      case Kernel::kPrefillShort:
        return short_launch();
      case Kernel::kAllReduce:
        return all_reduce_launch();
    }
    return {};
  }

 private:
  bool of_prefill() const {
    return spec_.kernel == Kernel::kPrefill || spec_.kernel == Kernel::kKvFanOut ||
           spec_.kernel == Kernel::kPrefillShort;
  }
  int64_t query_end() const { return spec_.query_end > 0 ? spec_.query_end : spec_.context; }
  int64_t largest_context() const { return std::max(spec_.context, spec_.largest_context); }
  float scale() const { return 1 / std::sqrt(static_cast<float>(spec_.d)); }

  void check() const {
    if (spec_.context < 1) fail(ErrorKind::kUsage, "a context of {} tokens: it needs at least 1", spec_.context);
    if (spec_.tile < 1) fail(ErrorKind::kUsage, "tiles of {} tokens: they need at least 1", spec_.tile);
    if (spec_.users < 1) fail(ErrorKind::kUsage, "{} users: there must be at least 1", spec_.users);
    if (spec_.kv_heads < 1) fail(ErrorKind::kUsage, "{} KV heads: there must be at least 1", spec_.kv_heads);
    if (spec_.pes > places_.pes.size())
      fail(ErrorKind::kUsage, "{} PEs a CUBE: the chip has {}", spec_.pes, places_.pes.size());
    if (!of_prefill()) return;
    if (query_end() > spec_.context || spec_.query_begin < 0 || spec_.query_begin >= query_end()) {
      fail(ErrorKind::kUsage,
           "queries {} to {} of a context of {} tokens: they must lie within it (their keys are written before)",
           spec_.query_begin, query_end(), spec_.context);
    }
    if (spec_.query_rows < spec_.rows) {
      fail(ErrorKind::kUsage, "{} rows of queries at a time: a position alone has {}", spec_.query_rows, spec_.rows);
    }
  }

  void place_groups() {
    groups_ = attention::cube_groups(places_.cubes, spec_.cubes);
    pes_ = attention::pe_mesh(spec_.pes);
    place_user(0);
  }
  void place_user(int user) {
    placement_ = attention::kv_placement(largest_context(), spec_.cubes, spec_.pes, of_prefill() ? spec_.tile : 1,
                                         spec_.request + user);
  }

  // One rank's part, of all users: each has its keys where its own request number puts them.
  // make(user): its RequestArgs and MemoryLayout, of buffers whose turn is the user.
  Part part_of_users(const auto& make) {
    Part part;
    RequestsArgs all;
    for (int user = 0; user < spec_.users; ++user) {
      place_user(user);
      auto [args, memory] = make(user);
      memory.head += user * spec_.kv_heads;
      part.memory.push_back(memory);
      all.requests.push_back(std::move(args));
    }
    if (spec_.users > 1) {
      part.args = std::move(all);
    } else {
      std::visit([&](auto& one) { part.args = std::move(one); }, all.requests[0]);
    }
    return part;
  }

  // Calls make_part(head, group, place, pe) for each rank of each head's group; a program for each SIP.
  void add_groups(Launch& launch, const auto& make_part) const {
    const int per_sip = groups_.count();
    launch.heads = std::min(spec_.kv_heads, per_sip * places_.sips);
    launch.launches = (spec_.kv_heads + launch.heads - 1) / launch.heads;
    launch.parts_of_head = static_cast<size_t>(spec_.cubes * spec_.pes);
    for (int sip = 0; sip * per_sip < launch.heads; ++sip) {
      Program& program = launch.programs.emplace_back();
      program.first_sip = sip;
      for (int group = 0; group < std::min(per_sip, launch.heads - sip * per_sip); ++group) {
        for (int place = 0; place < spec_.cubes; ++place) {
          for (int pe = 0; pe < spec_.pes; ++pe) {
            program.parts.push_back(make_part(attention::head_of(sip, group, per_sip), group, place, pe));
            program.parts.back().place = {sip, groups_.cube(group, place), pe};
          }
        }
      }
    }
  }

  MemoryLayout layout(int head, int rank) const {
    MemoryLayout made;
    made.head = head;
    made.first_token = placement_.begin(rank);
    made.tile = spec_.tile, made.d = spec_.d;
    made.group = made.heads = spec_.rows;
    made.first_query = of_prefill() ? spec_.query_begin : 0;
    return made;
  }

  DecodeArgs decode_args(int64_t tokens, uint32_t turn) const {
    DecodeArgs args;
    args.q = buffer_of(Content::kQueries, turn), args.k = buffer_of(Content::kKeys, turn);
    args.v = buffer_of(Content::kValues, turn), args.o = buffer_of(Content::kOutput, turn);
    args.variant = spec_.variant;
    args.rows = spec_.rows, args.d = spec_.d, args.tile = spec_.tile;
    args.tokens = tokens;
    args.scale = scale();
    args.scopes = spec_.scopes;
    return args;
  }

  Launch decode_launch() {
    place_groups();
    const attention::TwoLevelReduce reduce =
        attention::two_level_reduce(pes_, spec_.within, groups_.group, spec_.across);
    Launch launch;
    if (spec_.kernel != Kernel::kHeadPacking) launch.rounds = reduce.rounds(), launch.sends = reduce.sends();
    if (spec_.kernel == Kernel::kDecode) launch.sends *= spec_.users;
    const auto decode_of = [&](int group, int place, int pe, int user) {
      DecodeArgs args =
          decode_args(placement_.held(placement_.rank_of(place, pe), spec_.context), static_cast<uint32_t>(user));
      args.reduce.within = reduce_level(reduce.within, pe, Level::kPe, [](int from) { return from; });
      args.reduce.across =
          reduce_level(reduce.across, place, Level::kCube, [&](int from) { return groups_.cube(group, from); });
      return args;
    };
    add_groups(launch, [&](int head, int group, int place, int pe) {
      if (spec_.kernel == Kernel::kDecode) {
        return part_of_users([&](int user) {
          return std::pair(RequestArgs(decode_of(group, place, pe, user)), layout(head, placement_.rank_of(place, pe)));
        });
      }
      const DecodeArgs args = decode_of(group, place, pe, 0);
      Part part{{}, {}, {layout(head, placement_.rank_of(place, pe))}};
      if (spec_.kernel == Kernel::kBlockingDot) part.args = BlockingDot{args};
      if (spec_.kernel == Kernel::kHeadPacking) part.args = HeadPacking{args};
      return part;
    });
    return launch;
  }

  // ---- Rings

  RingPlace cube_ring(int group, int place) const {
    if (spec_.cubes == 1) return {};
    const RingOrder ring = attention::ring_order(groups_.group);
    RingPlace made;
    made.size = spec_.cubes;
    made.position = ring.position[static_cast<size_t>(place)];
    made.next = {Level::kCube, groups_.cube(group, ring.next(place))};
    made.previous = {Level::kCube, groups_.cube(group, ring.previous(place))};
    made.blocks.clear();
    for (const int at : ring.place) made.blocks.push_back(placement_.rank_of(at, 0) / spec_.pes);
    return made;
  }

  RingPlace pe_ring(int pe) const {
    if (spec_.pes == 1) return {};
    const RingOrder ring = attention::ring_order(pes_);
    RingPlace made;
    made.size = spec_.pes;
    made.position = ring.position[static_cast<size_t>(pe)];
    made.next = {Level::kPe, ring.next(pe)};
    made.previous = {Level::kPe, ring.previous(pe)};
    made.blocks.clear();
    for (const int at : ring.place) made.blocks.push_back(placement_.rank_of(0, at) % spec_.pes);
    return made;
  }

  // A ring over all ranks of a group, of single hops: through the PEs of each CUBE, there and back in turns.
  RingPlace rank_ring(int group, int place, int pe) const {
    if (spec_.cubes * spec_.pes == 1) return {};
    struct Rank {
      int place, pe;
    };
    const RingOrder cubes = attention::ring_order(groups_.group), pes = attention::ring_order(pes_);
    std::vector<Rank> order;
    RingPlace made;
    made.blocks.clear();
    for (size_t i = 0; i < cubes.place.size(); ++i) {
      for (size_t j = 0; j < pes.place.size(); ++j) {
        const Rank rank{cubes.place[i], pes.place[i % 2 == 0 ? j : pes.place.size() - 1 - j]};
        if (rank.place == place && rank.pe == pe) made.position = static_cast<int>(order.size());
        made.blocks.push_back(placement_.rank_of(rank.place, rank.pe));
        order.push_back(rank);
      }
    }
    made.size = static_cast<int>(order.size());
    const auto peer = [&](int position) {
      const Rank& rank = order[static_cast<size_t>((position + made.size) % made.size)];
      return rank.place == place ? Peer{Level::kPe, rank.pe} : Peer{Level::kCube, groups_.cube(group, rank.place)};
    };
    made.next = peer(made.position + 1), made.previous = peer(made.position - 1);
    return made;
  }

  RingPrefillArgs ring_args(int64_t heads) const {
    RingPrefillArgs args;
    args.heads = heads, args.d = spec_.d, args.tile = spec_.tile;
    args.region = placement_.block;
    args.rows = spec_.query_rows / heads;
    args.chunk = placement_.capacity();
    args.query_begin = spec_.query_begin, args.query_end = query_end();
    args.scale = scale();
    return args;
  }

  // Messages of a chunk, of all PEs: each sends keys and values of whole regions.
  int64_t sends(const RingPrefillArgs& args, int64_t ranks, int64_t blocks_computed) const {
    return args.turns * ranks * (2 * (args.cubes.size - 1) + 2 * (args.pes.size - 1) * blocks_computed);
  }

  Launch prefill_launch() {
    place_groups();
    if (spec_.cubes > 1 && spec_.cubes != spec_.rows) {
      fail(ErrorKind::kUsage,
           "ring prefill on {} CUBEs for {} query heads: each CUBE works for one; choose as many CUBEs, or one alone",
           spec_.cubes, spec_.rows);
    }
    if (spec_.cubes * spec_.pes == 1) return whole_prefill_launch();
    Launch launch;
    launch.rounds = spec_.cubes - 1;
    RingPrefillArgs args = ring_args(spec_.cubes > 1 ? 1 : spec_.rows);
    args.chunk = placement_.block * spec_.pes;
    args.shares = spec_.pes;
    args.cubes.size = spec_.cubes, args.pes.size = spec_.pes;
    for (int64_t begin = args.query_begin; begin < args.query_end;) {
      const int64_t chunk = begin / args.chunk, end = std::min((chunk + 1) * args.chunk, args.query_end);
      launch.steps_computed += chunk + 1, launch.steps_skipped += spec_.cubes - chunk - 1;
      launch.sends += sends(args, placement_.ranks(), chunk + 1);
      begin = end;
    }
    launch.sends *= spec_.users;
    add_groups(launch, [&](int head, int group, int place, int pe) {
      return part_of_users([&](int user) {
        RingPrefillArgs one = args;
        one.first_turn = static_cast<uint32_t>(user);
        one.cubes = cube_ring(group, place), one.pes = pe_ring(pe);
        one.share = one.pes.position;
        MemoryLayout memory = layout(head, placement_.rank_of(place, pe));
        if (spec_.cubes > 1) memory.heads = 1, memory.first_query_head = placement_.rank_of(place, 0) / spec_.pes;
        return std::pair(RequestArgs(std::move(one)), memory);
      });
    });
    return launch;
  }

  Launch whole_prefill_launch() {
    PrefillArgs args;
    args.heads = spec_.rows, args.d = spec_.d, args.tile = spec_.tile;
    args.block = spec_.query_rows / spec_.rows;
    args.query_begin = spec_.query_begin, args.query_end = query_end();
    args.tokens = spec_.context;
    args.scale = scale();
    Launch launch;
    add_groups(launch, [&](int head, int, int, int) {
      return part_of_users([&](int user) {
        const auto turn = static_cast<uint32_t>(user);
        args.q = buffer_of(Content::kQueries, turn), args.k = buffer_of(Content::kKeys, turn);
        args.v = buffer_of(Content::kValues, turn), args.o = buffer_of(Content::kOutput, turn);
        return std::pair(RequestArgs(args), layout(head, 0));
      });
    });
    return launch;
  }

  Launch kv_fan_out_launch() {
    place_groups();
    Launch launch;
    RingPrefillArgs args = ring_args(1);
    args.turns = static_cast<uint32_t>(spec_.rows);
    args.shares = placement_.ranks();
    args.skip_future = false;
    args.cubes.size = placement_.ranks();
    launch.rounds = placement_.ranks() - 1;
    launch.sends = sends(args, placement_.ranks(), 0);
    add_groups(launch, [&](int head, int group, int place, int pe) {
      RingPrefillArgs one = args;
      one.cubes = rank_ring(group, place, pe);
      one.share = one.cubes.position;
      Part part{{}, one, {}};
      for (int64_t query_head = 0; query_head < spec_.rows; ++query_head) {
        MemoryLayout& memory = part.memory.emplace_back(layout(head, placement_.rank_of(place, pe)));
        memory.heads = 1, memory.first_query_head = query_head;
      }
      return part;
    });
    return launch;
  }

  Launch fan_out_launch() {
    place_groups();
    Launch launch;
    const int64_t ranks = placement_.ranks();
    launch.rounds = static_cast<int>(ranks) - 1;
    launch.sends = 3 * ranks * (ranks - 1);
    add_groups(launch, [&](int head, int group, int place, int pe) {
      const int rank = placement_.rank_of(place, pe);
      FanOutArgs args;
      args.sweep = decode_args(placement_.held(rank, spec_.context), 0);
      args.ranks = rank_ring(group, place, pe);
      args.stores = place == 0 && pe == 0;
      return Part{{}, args, {layout(head, rank)}};
    });
    return launch;
  }

  // ---- Whole heads on a CUBE

  Launch short_launch() {
    const int owned = spec_.kv_per_cube;
    if (owned != 1 && owned != 2 && owned != 4 && owned != 8)
      fail(ErrorKind::kUsage, "{} KV heads on a CUBE: choose 1, 2, 4 or 8", owned);
    const int cubes = (spec_.kv_heads + owned - 1) / owned;
    if (cubes > places_.cubes.size() * places_.sips) {
      fail(ErrorKind::kUsage, "{} KV heads, {} on each CUBE: the chip has {} CUBEs", spec_.kv_heads, owned,
           places_.cubes.size() * places_.sips);
    }
    pes_ = attention::pe_mesh(spec_.pes);
    placement_ = attention::kv_placement(largest_context(), 1, spec_.pes, of_prefill() ? spec_.tile : 1, spec_.request);
    const attention::ReduceSchedule reduce = attention::reduce_schedule(pes_, spec_.within);
    Launch launch;
    launch.heads = spec_.kv_heads;
    RingPrefillArgs ring = ring_args(spec_.rows);
    if (of_prefill()) {
      ring.shares = ring.pes.size = spec_.pes;
      launch.sends = sends(ring, spec_.pes, 1);
    } else {
      launch.rounds = std::min(owned, spec_.kv_heads) * reduce.rounds;
      launch.sends = 3 * static_cast<int64_t>(reduce.messages.size());
    }
    for (int cube = 0; cube < cubes; ++cube) {
      const int sip = cube / places_.cubes.size();
      if (sip == static_cast<int>(launch.programs.size())) launch.programs.emplace_back().first_sip = sip;
      const int first = cube * owned, count = std::min(owned, spec_.kv_heads - first);
      for (int pe = 0; pe < spec_.pes; ++pe) {
        const int rank = placement_.rank_of(0, pe);
        Part part{{sip, cube % places_.cubes.size(), pe}, {}, {}};
        for (int i = 0; i < count; ++i) part.memory.push_back(layout(first + i, rank));
        if (of_prefill()) {
          RingPrefillArgs one = ring;
          one.turns = static_cast<uint32_t>(count);
          one.pes = pe_ring(pe);
          one.share = one.pes.position;
          part.args = one;
        } else {
          RequestsArgs heads;
          for (int i = 0; i < count; ++i) {
            DecodeArgs args = decode_args(placement_.held(rank, spec_.context), static_cast<uint32_t>(i));
            args.reduce.within = reduce_level(reduce, pe, Level::kPe, [](int from) { return from; });
            heads.requests.emplace_back(std::move(args));
          }
          part.args = heads;
        }
        launch.programs.back().parts.push_back(std::move(part));
      }
    }
    return launch;
  }

  // Every PE number reduces [rows, d] of its own, over the first group of each SIP.
  Launch all_reduce_launch() {
    place_groups();
    const attention::ReduceSchedule schedule = attention::reduce_schedule(groups_.group, spec_.across);
    const int sips = places_.sips;
    Launch launch;
    launch.heads = spec_.kv_heads;
    launch.rounds = 2 * schedule.rounds + sips - 1;
    launch.sends = (int64_t{sips} * 2 * (spec_.cubes - 1) + int64_t{sips} * (sips - 1)) * spec_.pes;
    Program& program = launch.programs.emplace_back();
    program.sips = sips;
    for (int sip = 0; sip < sips; ++sip) {
      for (int place = 0; place < spec_.cubes; ++place) {
        for (int pe = 0; pe < spec_.pes; ++pe) {
          AllReduceArgs args;
          args.in = kQueries, args.out = buffer_of(Content::kOutput, 0, Type::kF32);
          args.rows = spec_.rows, args.d = spec_.d;
          args.cubes = reduce_level(schedule, place, Level::kCube, [&](int from) { return groups_.cube(0, from); });
          args.sips = sips, args.sip = sip;
          args.next_sip = {Level::kSip, (sip + 1) % sips}, args.previous_sip = {Level::kSip, (sip + sips - 1) % sips};
          const int number = (sip * spec_.cubes + place) * spec_.pes + pe;
          program.parts.push_back({{sip, groups_.cube(0, place), pe}, args, {layout(number, 0)}});
        }
      }
    }
    return launch;
  }

  const Places& places_;
  const LaunchSpec& spec_;
  CubeGroups groups_;
  attention::Mesh pes_;
  KvPlacement placement_;
};

}  // namespace

std::string_view name_of(Kernel kernel) {
  static constexpr std::array<std::string_view, kKernels.size()> kNames = {
      "decode",  "prefill",    "decode-short", "prefill-short", "allreduce",
      "fan-out", "kv-fan-out", "blocking-dot", "head-packing"};
  return kNames[static_cast<size_t>(kernel)];
}

std::vector<Peer> peers_of(const KernelArgs& args) {
  struct Peers {
    std::vector<Peer> list;
    void operator()(const ReduceLevel& level) {
      if (!level.root) list.push_back(level.parent);
    }
    void operator()(const RingPlace& ring) {
      if (ring.size > 1) list.push_back(ring.next);
    }
    void operator()(const DecodeArgs& one) {
      (*this)(one.reduce.within);
      if (one.reduce.within.root) (*this)(one.reduce.across);
    }
    void operator()(const PrefillArgs&) {}
    void operator()(const RequestsArgs& all) {
      for (const RequestArgs& one : all.requests) std::visit(*this, one);
    }
    void operator()(const RingPrefillArgs& one) { (*this)(one.cubes), (*this)(one.pes); }
    void operator()(const AllReduceArgs& one) {
      (*this)(one.cubes);
      list.insert(list.end(), one.cubes.children.begin(), one.cubes.children.end());
      if (one.sips > 1 && one.cubes.root) list.push_back(one.next_sip);
    }
    void operator()(const FanOutArgs& one) { (*this)(one.ranks); }
  } peers;
  std::visit(peers, args);
  return std::move(peers.list);
}

Launch make_launch(const Places& places, const LaunchSpec& spec) { return Planner(places, spec).make(); }

void OutputCollector::add(const RankMemory& memory, const std::vector<Note>& notes) {
  std::vector<const std::vector<float>*> m, l;
  for (const Note& note : notes) (note.name == "m" ? m : l).push_back(&note.values);
  for (size_t i = 0; i < memory.stores().size(); ++i) {
    const RankMemory::Store& store = memory.stores()[i];
    const MemoryLayout& layout = *store.layout;
    const auto head = static_cast<size_t>(layout.head), d = static_cast<size_t>(layout.d);
    if (heads_.size() <= head) heads_.resize(head + 1);
    HeadOutput& output = heads_[head];
    ++output.stores;
    const int64_t width = store.rows / layout.heads;
    for (int64_t row = 0; row < store.rows; ++row) {
      const auto to = static_cast<size_t>((store.row / layout.heads + row % width) * layout.group +
                                          layout.first_query_head + row / width);
      if (output.o.size() < (to + 1) * d) {
        output.o.resize((to + 1) * d);
        if (!l.empty()) output.m.resize(to + 1), output.l.resize(to + 1);
      }
      std::copy_n(store.values.begin() + row * layout.d, d, output.o.begin() + static_cast<std::ptrdiff_t>(to * d));
      if (l.empty()) continue;
      output.m[to] = m[i]->at(static_cast<size_t>(row));
      output.l[to] = l[i]->at(static_cast<size_t>(row));
    }
  }
}

}  // namespace coprime::tl
