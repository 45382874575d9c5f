// A launch as plain data: which PE runs which kernel, with which arguments, over which memory. Both machines run it.
#pragma once

#include <array>
#include <string>
#include <variant>
#include <vector>

#include "attention/reduce_schedule.h"
#include "tl/kernels/all_reduce.h"
#include "tl/kernels/baselines.h"
#include "tl/kernels/decode.h"
#include "tl/kernels/prefill.h"
#include "tl/kernels/requests.h"
#include "tl/kernels/ring_prefill.h"
#include "tl/place.h"
#include "tl/rank_memory.h"

namespace coprime::tl {

enum class Kernel : uint8_t {
  kDecode,
  kPrefill,  // ring, or without it where one PE owns all keys
  kDecodeShort,
  kPrefillShort,
  kAllReduce,
  kFanOut,       // baselines.h, as are all that follow
  kKvFanOut,     // prefill: all keys to every rank, for each query head again
  kBlockingDot,  // decode
  kHeadPacking,
};
inline constexpr std::array kKernels = {Kernel::kDecode,       Kernel::kPrefill,     Kernel::kDecodeShort,
                                        Kernel::kPrefillShort, Kernel::kAllReduce,   Kernel::kFanOut,
                                        Kernel::kKvFanOut,     Kernel::kBlockingDot, Kernel::kHeadPacking};
std::string_view name_of(Kernel kernel);  // decode, prefill, decode-short, prefill-short, allreduce, fan-out, ...

struct BlockingDot : DecodeArgs {};
struct HeadPacking : DecodeArgs {};
using KernelArgs = std::variant<DecodeArgs, PrefillArgs, RingPrefillArgs, RequestsArgs, AllReduceArgs, FanOutArgs,
                                BlockingDot, HeadPacking>;

// The arguments outlive the task.
template <class M>
Task start_kernel(M& tl, const KernelArgs& args) {
  struct Start {
    M& tl;
    Task operator()(const DecodeArgs& one) const { return decode(tl, one); }
    Task operator()(const PrefillArgs& one) const { return prefill(tl, one); }
    Task operator()(const RingPrefillArgs& one) const { return ring_prefill(tl, one); }
    Task operator()(const RequestsArgs& all) const { return in_turn(tl, all); }
    Task operator()(const AllReduceArgs& one) const { return all_reduce(tl, one); }
    Task operator()(const FanOutArgs& one) const { return fan_out(tl, one); }
    Task operator()(const BlockingDot& one) const { return blocking_decode(tl, one); }
    Task operator()(const HeadPacking& one) const { return head_packing(tl, one); }
  };
  return std::visit(Start{tl}, args);
}

// Whom the kernel sends to.
std::vector<Peer> peers_of(const KernelArgs& args);

struct Part {
  Place place;
  KernelArgs args;
  std::vector<MemoryLayout> memory;  // by turn
};

// What speaks with each other, on SIPs [first_sip, first_sip + sips).
struct Program {
  int first_sip = 0, sips = 1;
  std::vector<Part> parts;
};

// What a person asks for.
struct LaunchSpec {
  Kernel kernel = Kernel::kDecode;
  DecodeVariant variant = DecodeVariant::kOpt3;
  int64_t context = 1 << 20;    // tokens that are valid at launch, the new ones included
  int64_t largest_context = 0;  // that the cache has room for; 0: context
  int cubes = 8, pes = 8;       // of a group: C and P
  int64_t tile = 64;
  int kv_heads = 8;
  int64_t rows = 8, d = 128;                                            // query heads of a KV head; width of a head
  attention::ReduceTopology within = attention::ReduceTopology::kTree;  // of the PEs of a CUBE
  attention::ReduceTopology across = attention::ReduceTopology::kCentreMesh;  // of the CUBEs of a group
  int64_t request = 0;                                                        // rotates the placement of data
  int users = 1;  // decode and prefill: requests under way at once, `request` and those that follow it
  bool scopes = true;
  int kv_per_cube = 1;                     // short kernels: KV heads that a CUBE owns
  int64_t query_begin = 0, query_end = 0;  // prefill: positions; 0, 0: the whole context
  int64_t query_rows = 256;                // prefill: rows (positions x heads) that a PE works on at a time
};

// Everything that runs at once, and the closed forms of what it exchanges.
struct Launch {
  std::vector<Program> programs;
  int heads = 0;  // that these work for
  size_t parts_of_head =
      0;              // not 0: the parts of each head follow each other, and are those of the first head elsewhere
  int launches = 1;   // one after another, for all heads of the spec
  int rounds = 0;     // of the reduction, or transfers of the ring
  int64_t sends = 0;  // of one KV head and all users (of the all-reduce: of all)
  int64_t steps_computed = 0;  // of the ring: block steps of one CUBE over the chunks
  int64_t steps_skipped = 0;
};

// Error(kUsage) for what cannot be placed.
Launch make_launch(const Places& places, const LaunchSpec& spec);

// What a head's parts stored, in data mode. The heads of the second user follow those of the first.
struct HeadOutput {
  std::vector<float> o;     // by position and query head: [positions * G, d]; of the all-reduce: [rows, d]
  std::vector<float> m, l;  // [positions * G], before the division
  int stores = 0;
  bool operator==(const HeadOutput&) const = default;
};

// The outputs that a program's parts stored. notes: of a part, in order; its kernel noted m and l before each store.
class OutputCollector {
 public:
  void add(const RankMemory& memory, const std::vector<Note>& notes);
  std::vector<HeadOutput> take() { return std::move(heads_); }

 private:
  std::vector<HeadOutput> heads_;
};

}  // namespace coprime::tl
