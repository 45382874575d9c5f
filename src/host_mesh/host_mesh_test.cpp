// No schedule stops the kernels, queues of one slot included; a kernel that can stop is found out, with the graph.
#include <gtest/gtest.h>

#include <algorithm>

#include "attention/cube_groups.h"
#include "base/error.h"
#include "base/testing.h"
#include "host_mesh/run.h"

namespace coprime::host_mesh {
namespace {

using attention::ReduceTopology;
using tl::Kernel;

// What many schedules are tried on: small, with messages of several slots.
struct Case {
  std::string name;
  tl::Places places;
  tl::LaunchSpec spec;
};

tl::LaunchSpec small(Kernel kernel, int cubes, int pes) {
  tl::LaunchSpec spec;
  spec.kernel = kernel;
  spec.cubes = cubes, spec.pes = pes;
  spec.kv_heads = 1;
  spec.rows = kernel == Kernel::kPrefill && cubes > 1 ? cubes : 2;
  spec.d = 8, spec.tile = 8, spec.query_rows = 8;
  spec.context = int64_t{cubes} * pes * 8 * 2 - 3;  // two tiles a rank, the last one short
  return spec;
}

std::vector<Case> cases() {
  std::vector<Case> made;
  const auto add = [&made](std::string name, const tl::LaunchSpec& spec, int sips = 1) {
    made.push_back({std::move(name), {sips, {4, 4}, attention::pe_mesh(spec.pes)}, spec});
  };
  for (const ReduceTopology topology : attention::kReduceTopologies) {
    tl::LaunchSpec spec = small(Kernel::kDecode, 2, 4);
    spec.within = topology;
    add("decode " + std::string(name_of(topology)), spec);
    spec = small(Kernel::kDecode, 4, 2);
    spec.across = topology;
    add("decode across " + std::string(name_of(topology)), spec);
  }
  add("ring prefill", small(Kernel::kPrefill, 2, 2));
  add("ring prefill of four", small(Kernel::kPrefill, 4, 1));
  add("prefill on one CUBE", small(Kernel::kPrefill, 1, 4));
  tl::LaunchSpec users = small(Kernel::kDecode, 2, 2);
  users.users = 3;
  add("decode of three users", users);
  users = small(Kernel::kPrefill, 2, 2);
  users.users = 2;
  add("ring prefill of two users", users);
  tl::LaunchSpec spec = small(Kernel::kDecodeShort, 1, 4);
  spec.kv_heads = 4, spec.kv_per_cube = 2;
  add("short decode", spec);
  spec.kernel = Kernel::kPrefillShort;
  add("short prefill", spec);
  add("all-reduce", small(Kernel::kAllReduce, 4, 1), 3);
  add("fan-out", small(Kernel::kFanOut, 2, 2));
  add("K/V fan-out", small(Kernel::kKvFanOut, 2, 1));
  return made;
}

// Slots of every depth, smaller and larger than the messages.
QueueSizes sizes_of(uint64_t seed) {
  constexpr int64_t kSlots[] = {1, 1, 2, 4}, kBytes[] = {20, 64, 512};
  return {kSlots[seed % 4], kBytes[seed / 4 % 3], 1 << 20};
}

void expect_no_deadlock(uint64_t schedules) {
  const std::vector<Case> all = cases();
  std::vector<tl::Launch> launches;
  for (const Case& one : all) launches.push_back(tl::make_launch(one.places, one.spec));
  for (uint64_t seed = 0; seed < schedules; ++seed) {
    const size_t at = seed % all.size();
    try {
      run(all[at].places, sizes_of(seed / all.size()), launches[at], nullptr, seed);
    } catch (const Error& error) {
      FAIL() << all[at].name << ", seed " << seed << ": " << error.what();
    }
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kSanitizedShare = 10;  // they slow it down some tens of times
#else
constexpr uint64_t kSanitizedShare = 1;
#endif

TEST(HostMesh, NoDeadlockIn100000Schedules) { expect_no_deadlock(100'000 / kSanitizedShare); }
// COPRIME_SOAK_PERCENT=100000 tries a million.
TEST(HostMeshSoak, NoDeadlockInAMillionSchedules) {
  expect_no_deadlock(10 * static_cast<uint64_t>(testing::soak_percent()));
}

TEST(HostMesh, NoDeadlockIn1000FreeRuns) {
  const std::vector<Case> all = cases();
  for (uint64_t i = 0; i < 1000; ++i) {
    const Case& one = all[i % all.size()];
    try {
      run(one.places, sizes_of(i / all.size()), one.spec, nullptr, {});
    } catch (const Error& error) {
      FAIL() << one.name << ", run " << i << ": " << error.what();
    }
  }
}

TEST(HostMesh, EverySchedulerSeedGivesTheSameBits) {
  const tl::CounterInputs inputs(21);
  for (const Case& one : cases()) {
    const auto first = run(one.places, {}, one.spec, &inputs, {});
    ASSERT_FALSE(first.empty()) << one.name;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const auto other = run(one.places, sizes_of(seed), one.spec, &inputs, seed);
      for (size_t head = 0; head < first.size(); ++head) {
        EXPECT_EQ(first[head].o, other[head].o) << one.name;
        EXPECT_EQ(first[head].l, other[head].l) << one.name;
      }
    }
  }
}

// ---- A kernel that can stand still: on a ring, each sends before it posts its receive.

struct RingArgs {
  tl::Peer next, previous;
  int64_t rows = 1;
};

template <class M>
tl::Task send_first(M& tl, const RingArgs& args) {
  const auto scope = tl.scratch_scope();
  const tl::Tensor x = co_await tl.full(args.rows, 16, 1);
  co_await tl.send(args.next, x);
  co_await tl.recv(args.previous, args.rows, 16, tl::Type::kF32);
}

const tl::Places kRow{1, {1, 1}, {2, 2}};
constexpr int kOrder[] = {0, 1, 3, 2};

void launch_ring(HostMesh& mesh, RingArgs (&args)[4], int64_t rows) {
  for (int i = 0; i < 4; ++i) {
    args[i] = {{tl::Level::kPe, kOrder[(i + 1) % 4]}, {tl::Level::kPe, kOrder[(i + 3) % 4]}, rows};
    mesh.launch({0, 0, kOrder[i]}, "send_first", nullptr,
                [&, i](tl::Tl<Worker>& tl) { return send_first(tl, args[i]); });
  }
}

void expect_graph(const std::string& text) {
  EXPECT_NE(text.find("4 PEs wait for what will never come"), std::string::npos) << text;
  EXPECT_NE(text.find("waits for room in the queue to SIP 0 CUBE 0 PE 1"), std::string::npos) << text;
  EXPECT_NE(text.find("a cycle: SIP 0 CUBE 0 PE 0 -> SIP 0 CUBE 0 PE 1 -> SIP 0 CUBE 0 PE 3 -> SIP 0 CUBE 0 PE 2 -> "
                      "SIP 0 CUBE 0 PE 0"),
            std::string::npos)
      << text;
}

TEST(HostMesh, SendingFirstStandsStillWhereAMessageIsLongerThanTheQueue) {
  const QueueSizes one_slot{1, 64, 1 << 16};
  for (uint64_t seed = 0; seed < 20; ++seed) {
    HostMesh mesh(kRow, one_slot);
    RingArgs args[4];
    launch_ring(mesh, args, 2);  // two slots
    try {
      mesh.run_scheduled(seed);
      FAIL();
    } catch (const Error& error) {
      expect_graph(error.what());
      EXPECT_NE(std::string(error.what()).find(fmt::format("seed {}", seed)), std::string::npos);
    }
    HostMesh free(kRow, one_slot);
    launch_ring(free, args, 2);
    try {
      free.run_free();
      FAIL();
    } catch (const Error& error) {
      expect_graph(error.what());
    }
  }
}

TEST(HostMesh, SendingFirstGoesWellWhereAMessageFitsTheQueue) {
  HostMesh mesh(kRow, {1, 64, 1 << 16});
  RingArgs args[4];
  launch_ring(mesh, args, 1);
  mesh.run_free();
}

template <class M>
tl::Task send_to_nobody(M& tl, const RingArgs& args) {
  const tl::Tensor x = co_await tl.full(1, 16, 1);
  co_await tl.send(args.next, x);
}

TEST(HostMesh, AMessageThatNobodyReceivesIsAnError) {
  for (const bool free : {true, false}) {
    HostMesh mesh(kRow, {1, 64, 1 << 16});
    const RingArgs args{{tl::Level::kPe, 1}, {}, 1};
    mesh.launch({0, 0, 0}, "send_to_nobody", nullptr, [&](tl::Tl<Worker>& tl) { return send_to_nobody(tl, args); });
    EXPECT_THROW(free ? mesh.run_free() : mesh.run_scheduled(1), Error);
  }
}

TEST(HostMesh, AnErrorOfOneKernelEndsAll) {
  HostMesh mesh(kRow, {1, 64, 1 << 16});
  RingArgs args[4];
  launch_ring(mesh, args, 1 << 12);  // more than the arena
  try {
    mesh.run_free();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("bytes of scratch memory"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace coprime::host_mesh
