// One operation of a kernel, as a machine sees it: shapes are checked, the output has its place.
#pragma once

#include <string_view>

#include "tl/tensor.h"

namespace coprime::tl {

enum class Op : uint8_t {
  kLoad,
  kStore,
  kComposite,
  kDot,
  kSoftmaxPv,
  kMax,  // the first MATH operation
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
  kMask,  // the last
  kSend,
  kRecv,
  kRecvAsync,
  kWait,
  kWaitAll,
  kRepeat,  // the head of a loop's iteration: no operation of the chip
};
inline constexpr int kOps = static_cast<int>(Op::kRepeat) + 1;
constexpr bool is_math(Op op) { return op >= Op::kMax && op <= Op::kMask; }
std::string_view name_of(Op op);

enum class EpilogueKind : uint8_t { kNone, kScale, kBias, kAdd, kRelu };

// What a composite does to its result before it is written: times a value, plus a row [1, N], plus a tensor [M, N], or
// max(0, .).
struct Epilogue {
  EpilogueKind kind = EpilogueKind::kNone;
  float scale = 1;
  Tensor operand = {};
};
inline constexpr int kMaxEpilogues = 2;

// Whom a message goes to or comes from: the PE with this number in the own CUBE, or the PE of the own number in
// another CUBE of the SIP, or in another SIP.
enum class Level : uint8_t { kPe, kCube, kSip };
struct Peer {
  Level level = Level::kPe;
  int32_t number = 0;
};

struct Command {
  Op op = Op::kWaitAll;
  uint16_t line = 0;  // of the kernel
  Tensor a, b, out;
  // load and store: the data; composite, dot, softmax_pv: B, where b is no tensor; send and receives: the message,
  // where it is no tensor
  HbmRef hbm;
  State state;  // of softmax_pv
  Epilogue epilogue[kMaxEpilogues];
  float value = 0;       // of fill
  int64_t diagonal = 0;  // of mask
  Peer peer;             // of send and recv
  int64_t count = 0;     // of repeat: iterations that are alike; then, how many of them need not run
  uint32_t receive = 0;  // of wait: which; of recv and recv_async: set by the machine; of repeat: turns

  // Of a send, a receive, or the wait for one.
  int64_t message_bytes() const {
    const Tensor& x = op == Op::kSend ? a : out;
    return x ? x.bytes() : hbm.bytes();
  }
};

}  // namespace coprime::tl
