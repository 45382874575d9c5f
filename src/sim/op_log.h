// What each engine did, one row an operation, in columns. Rows come in the order of events, which is the same on every
// run, compiler and thread count; op numbers are given in the order in which operations come into being, and begin
// at 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/chip.h"

namespace coprime::sim {

enum class OpKind : uint8_t {
  kLoad,       // DMA, a tensor from HBM
  kStore,      // DMA, a tensor to HBM
  kFetch,      // DMA, a sub-tile of a composite's operand
  kComposite,  // GEMM, from the first sub-tile to the drained result
  kSubtile,    // GEMM, one sub-tile of B by all tiles of A's rows
  kSoftmaxPv,  // ex_composite, from its first step to the updated accumulator
  kMax,
  kSum,
  kExp,
  kMaximum,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kFill,
  kBroadcast,
  kTranspose,
  kMask,
  kSoftmaxStep,      // MATH of softmax_pv before its GEMM
  kAccumulatorStep,  // MATH of softmax_pv after its GEMM
  kSend,             // a message, from the first slot's start to its last byte's arrival
  kRecv,             // from the post to the last slot's arrival
  kCount,
};

// Whose end an operation's start was bound by (the later one where several were waited for).
enum class Cause : uint8_t {
  kNone,    // the launch
  kIssue,   // the CPU had just issued it
  kEngine,  // the operation before it on its own engine
  kData,    // an operand, or a sub-tile from HBM
  kBuffer,  // a stage, a request in flight, a slot's credit
  kCount,
};

struct OpRow {
  Tick start = 0, end = 0;
  uint64_t bytes = 0, macs = 0;
  uint32_t op = 0, cause_op = 0;  // cause_op 0: the launch
  uint32_t pe = 0;                // of the whole chip: (sip * cubes + cube) * pes + pe
  uint16_t line = 0;              // of the kernel's source
  OpKind kind = OpKind::kLoad;
  Cause cause = Cause::kNone;
};

struct OpLog {
  std::vector<Tick> start, end;
  std::vector<uint64_t> bytes, macs;
  std::vector<uint32_t> op, cause_op, pe;
  std::vector<uint16_t> line;
  std::vector<OpKind> kind;
  std::vector<Cause> cause;

  size_t size() const { return op.size(); }
  void resize(size_t rows) {
    start.resize(rows), end.resize(rows), bytes.resize(rows), macs.resize(rows), op.resize(rows);
    cause_op.resize(rows), pe.resize(rows), line.resize(rows), kind.resize(rows), cause.resize(rows);
  }
  void append(const OpRow& row) {
    start.push_back(row.start), end.push_back(row.end);
    bytes.push_back(row.bytes), macs.push_back(row.macs);
    op.push_back(row.op), cause_op.push_back(row.cause_op), pe.push_back(row.pe);
    line.push_back(row.line), kind.push_back(row.kind), cause.push_back(row.cause);
  }
};

}  // namespace coprime::sim
