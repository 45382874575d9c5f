// What front and ranks tell each other over the control channel. Steps and results have their own wire form
// (model/step_batch); the rest, rare, is JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "device/cpu/cpu_device.h"
#include "geometry/shard_plan.h"
#include "tensor/dtype.h"
#include "transport/channel.h"

namespace coprime {

enum class MessageType : uint32_t {
  kStart = 1,  // front to rank: RankStart
  kListening,  // rank to front, tcp: its port
  kPeers,      // front to rank, tcp: all ports
  kReady,      // rank to front: RankReady
  kStep,       // front to rank: StepBatch
  kResult,     // rank to front: StepResult
  kStop,       // front to rank: end
  kFailure,    // rank to front: an Error; the rank ends
  kReport,     // rank to front: a line for a person, at any time
};

enum class Link : uint8_t { kShm, kTcp };

struct RankStart {
  std::string model;  // directory
  PlanOptions plan;
  int rank = 0;
  Link link = Link::kShm;
  DType kv_type = DType::kF32;
  int threads = 1;
  Isa isa = Isa::kAvx512;
  int max_rows = 1, pages = 0, slots = 0, sequences = 1;
  int gate_timeout_ms = 5000;
  int port = 0;           // tcp: rank r listens on port + r; 0: any
  std::string world_key;  // tcp: a SecretKey in hexadecimal, known to this world's ranks only
  bool hash_gates = false;
  bool gate_profile = false, gate_trace = false;
};

struct RankReady {
  uint64_t agreement = 0;  // hash of what must be the same on every rank
  std::string order;       // the classes of its kernels: the same on every rank in exact mode
  std::string device;
  int64_t weight_bytes = 0, cache_bytes = 0, resident_bytes = 0;  // resident: the process's anonymous memory
  std::string tally;
  std::vector<std::string> unused;
};

struct RankFailure {
  ErrorKind kind = ErrorKind::kInternal;
  std::string text;
};

// The bytes of a message of JSON, as text; valid as long as the message.
std::string_view message_text(const Message& message);

std::string to_json(const RankStart& start);
std::string to_json(const RankReady& ready);
std::string to_json(const RankFailure& failure);
std::string ports_to_json(const std::vector<int>& ports);

// Error(kInternal) for text that is no such message.
RankStart rank_start_from_json(std::string_view json);
RankReady rank_ready_from_json(std::string_view json);
RankFailure rank_failure_from_json(std::string_view json);
std::vector<int> ports_from_json(std::string_view json);

}  // namespace coprime
