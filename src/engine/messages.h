// What front and ranks tell each other over the control channel. Steps and results have their own wire form
// (model/step_batch); the rest, rare, is JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "engine/facts.h"
#include "engine/links.h"
#include "geometry/shard_plan.h"
#include "tensor/dtype.h"
#include "transport/channel.h"

namespace coprime {

enum class MessageType : uint32_t {
  kStart = 1,   // front to rank: RankStart
  kFacts,       // rank to front: RankFacts
  kGroup,       // front to rank: RankGroup. Links are made, or made again
  kShared,      // rank to front: GroupResult
  kConnect,     // front to rank: LinkTable
  kConnected,   // rank to front: LinkReport
  kReady,       // rank to front: RankReady
  kStep,        // front to rank: StepBatch
  kResult,      // rank to front: StepResult
  kStepFailed,  // rank to front: RankFailure. The rank waits for new links
  kStop,        // front to rank: end; the reason as text, if it is not that all is done
  kFailure,     // rank to front: RankFailure. The rank ends
  kReport,      // rank to front: a line for a person, at any time
  // Of a front that measures links. kMeasure takes the place of kStart and is answered by kFacts without facts; links
  // are made as for an engine, kStepFailed says that they were not.
  kMeasure,      // front to rank: LinkStart
  kTrial,        // front to rank: TrialStart (tools/link_trial.h). New links come next
  kBeginTrial,   // front to rank: all have their links
  kTrialReport,  // rank to front: TrialReport
};

// How a rank of a world is to meet the others.
struct LinkStart {
  int rank = 0, ranks = 1;
  int threads = 0;  // 0: the cores of its host shared out
  int gate_timeout_ms = 750;
  int port = 0;             // rank r listens on port + r; 0: any
  std::string listen_host;  // where; empty: at the address from which it reached the front
  std::string world;        // its id, 16 bytes in hexadecimal
  std::string key;          // in hexadecimal; empty: the rank's operator gave it
  bool wire_auth = false;
  VerbsChoice verbs;  // for ranks whose operator makes none
  bool ucx = false;   // --link ucx: UCX is to be looked for
};

struct RankStart {
  LinkStart links;
  std::string model;  // folder or GGUF file on the front's host
  PlanOptions plan;   // its ranks are the links'
  MathMode math = MathMode::kSplit;
  DType kv_type = DType::kF32;
  Isa isa = Isa::kAmx;
  int max_rows = 1, pages = 0, slots = 0, sequences = 1;
  bool hash_gates = false;
  bool gate_profile = false, gate_trace = false;
};

struct RankFacts {
  Facts facts;
  std::string host;      // host_identity()
  int port = 0;          // where it listens for its peers; 0: it is alone
  std::string no_verbs;  // why it has no RDMA device; empty: it has opened one
  std::string no_ucx;    // likewise of UCX
  int cores = 1;         // that it may use
};

// The first half of making links: who is to share memory.
struct RankGroup {
  uint32_t epoch = 1;
  std::vector<int> ranks;  // with this rank, in rising order; empty: none
  int ranks_on_host = 1, index_on_host = 0;
};
struct GroupResult {
  bool shared = false;
  std::string failure;  // why not
};

// The second half: what joins this rank to each other.
struct LinkTable {
  struct Peer {
    Link link = Link::kAuto;  // kAuto: the rank itself, or one that it is not joined to
    std::string host;         // empty: as the rank reaches the front
    int port = 0;
  };
  std::vector<Peer> peers;  // by rank
  bool windowed = false;    // some pair of the world has a link that needs windows of posted receives
};
struct LinkReport {
  // By rank. "shm", "tcp", "verbs RC"; "none" for the rank itself and who is not joined.
  std::vector<std::string> names;
  std::vector<std::string> details;   // of a link that has some: device, addresses, depths
  std::vector<std::string> refusals;  // why it is TCP in place of the table's link; empty: it is the table's
};

struct RankReady {
  std::string order;          // the classes of its kernels: the same on every rank in exact mode
  std::string device, cores;  // where its threads run: core_plan_text()
  int threads = 1;
  int64_t step_bytes = 0;                                         // of the weights, those that every step reads
  int64_t weight_bytes = 0, cache_bytes = 0, resident_bytes = 0;  // resident: the process's anonymous memory
  std::string tally;
  std::vector<std::string> unused;
};

struct RankFailure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

// The bytes of a message, as text; valid as long as the message.
std::string_view message_text(const Message& message);

// One pair for each struct above. Error(kInternal) for text that is no such message.
template <class T>
std::string to_json(const T& value);
template <class T>
T from_json(std::string_view json);

}  // namespace coprime
