// The language that kernels are written in: `template <class M> Task kernel(M& tl, const Args& args)`, for any machine
// M = Tl<Core>. Every operation is awaited; what lies between operations costs a simulated chip nothing.
//
// Tl checks shapes and lifetimes, places outputs, and, where the machine has data, computes them in program order (the
// same code for every machine, hence the same bits). The Core gives time or threads:
//
//   bool issue(Command&)        false: not yet; the core resumes the kernel when it has issued it
//   void receive(const Command&, std::byte*)   the message that a recv or wait ended with
//   void note(std::string_view, Elements)      what note() shows
//   typename Core::Use, bool busy(const Use&)   what it keeps with each tensor (arena.h); whether an engine other than
//                               MATH still uses it
//   int program_id(int axis)    0: PE within its CUBE; 1: CUBE within its SIP; 2: SIP
//   void begin_loop(), void end_loop()         a loop whose iterations it may account for at once (Op::kRepeat)
//   Core::neighbour(Level, Direction)   the number of the PE, CUBE or SIP there; -1: none
//
// Errors (kUsage) name kernel, line and tensor: a shape that does not fit or does not conserve bytes, a tensor whose
// scope has ended, one that is being received, one that a machine still uses when its scope ends, an arena that is
// full, a neighbour that does not exist.
#pragma once

#include <coroutine>
#include <string>

#include "attention/mesh.h"
#include "base/error.h"
#include "tl/arena.h"
#include "tl/command.h"
#include "tl/evaluate.h"
#include "tl/math.h"
#include "tl/task.h"

namespace coprime::tl {

// A receive under way, until it is waited for.
struct Pending {
  uint32_t receive = 0;
  Peer peer;
  Tensor tensor;
  HbmRef hbm;  // where it is no tensor
};

// What a kernel showed by note().
struct Note {
  std::string name;
  std::vector<float> values;
};

template <class Core>
class Tl {
  using Use = typename Core::Use;

 public:
  // An operation, to be awaited at once. Result: Tensor, Pending or void.
  template <class Result>
  struct [[nodiscard]] Operation {
    Tl& tl;
    Command command;

    bool await_ready() { return tl.core_.issue(command); }
    void await_suspend(std::coroutine_handle<> kernel) { tl.suspended_ = kernel; }
    Result await_resume() {
      tl.finish(command);
      if constexpr (std::is_same_v<Result, int64_t>) return command.count;
      if constexpr (std::is_same_v<Result, Tensor>) return command.out;
      if constexpr (std::is_same_v<Result, Pending>)
        return Pending{command.receive, command.peer, command.out, command.hbm};
    }
  };

  class Scope {
   public:
    Scope(Tl& tl, bool recycle) : tl_(tl), recycle_(recycle), mark_(tl.arena_.mark()) {}
    Scope(const Scope&) = delete;
    ~Scope() noexcept(false) {
      if (recycle_) tl_.close_scope(mark_);
    }

    void keep(const Tensor& tensor, int line = __builtin_LINE()) {
      tl_.check_alive(tensor, "keep", line);
      tl_.arena_.keep(tensor);
    }

   private:
    Tl& tl_;
    bool recycle_;
    typename Arena<Use>::Mark mark_;
  };

  // A loop whose iterations a machine need not run one by one once it knows what each of them does. Loops nest.
  class Loop {
   public:
    explicit Loop(Tl& tl) : tl_(tl) { tl_.core_.begin_loop(); }
    Loop(const Loop&) = delete;
    ~Loop() { tl_.core_.end_loop(); }

    // At the head of an iteration: it and the next ones, `alike` in all, are the same operations on the same shapes
    // (in other places of HBM), speak with no other PE, and what takes turns in them takes turns in `turns`. Returns
    // how many of them have been accounted for: the kernel goes on behind those.
    Operation<int64_t> next(int64_t alike, uint32_t turns = 2, int line = __builtin_LINE()) {
      Operation<int64_t> operation = tl_.make<int64_t>(Op::kRepeat, line);
      operation.command.count = alike, operation.command.receive = turns;
      return operation;
    }

   private:
    Tl& tl_;
  };

  // hbm: null where there is no data. kernel: its name in messages.
  Tl(Core& core, std::string kernel, int64_t arena_bytes, Hbm* hbm)
      : core_(core), kernel_(std::move(kernel)), arena_(arena_bytes, hbm != nullptr), hbm_(hbm) {}

  int program_id(int axis) const { return core_.program_id(axis); }
  // Recycles what is allocated while it lives; with false it does nothing (to show what a kernel needs without).
  Scope scratch_scope(bool recycle = true) { return Scope(*this, recycle); }

  Loop loop() { return Loop(*this); }

  // Names for data: no operation.
  HbmRef ref(Buffer buffer, int64_t offset, int64_t rows, int64_t columns) const {
    return {buffer, offset, static_cast<int32_t>(rows), static_cast<int32_t>(columns)};
  }
  Tensor empty(int64_t rows, int64_t columns, Type type = Type::kF32, int line = __builtin_LINE()) {
    return place({}, rows, columns, type, "empty", line);
  }
  // The same bytes as rows x columns.
  Tensor view(Tensor x, int64_t rows, int64_t columns, int line = __builtin_LINE()) {
    check_alive(x, "view", line);
    if (rows * columns != x.elements()) {
      refuse(line, "view of {} as [{} x {}]: {} elements are not {}", text(x), rows, columns, x.elements(),
             rows * columns);
    }
    x.rows = static_cast<int32_t>(rows), x.columns = static_cast<int32_t>(columns);
    return x;
  }
  // Metadata only: the bytes stay where they are. transpose() moves them.
  Tensor trans(const Tensor& x, int line = __builtin_LINE()) { return view(x, x.columns, x.rows, line); }
  Peer neighbour(Level level, attention::Direction direction, int line = __builtin_LINE()) {
    const int number = core_.neighbour(level, direction);
    if (number < 0) refuse(line, "there is no neighbour {} of this place", attention::name_of(direction));
    return {level, number};
  }

  Operation<Tensor> load(const HbmRef& from, Tensor out = {}, int line = __builtin_LINE()) {
    Operation<Tensor> operation = make<Tensor>(Op::kLoad, line);
    operation.command.hbm = from;
    operation.command.out = place(out, from.rows, from.columns, from.buffer.type, "load", line);
    return operation;
  }
  Operation<void> store(const HbmRef& to, const Tensor& x, int line = __builtin_LINE()) {
    Operation<void> operation = make<void>(Op::kStore, line);
    operation.command.a = read(x, "store", line);
    operation.command.hbm = to;
    if (to.bytes() != x.bytes()) refuse(line, "store of {} into {} bytes", text(x), to.bytes());
    return operation;
  }

  // a [M, K] times b [K, N]: f32 unless out says otherwise. The epilogues are applied in order.
  Operation<Tensor> composite_gemm(const Tensor& a, const HbmRef& b, Tensor out = {}, Epilogue first = {},
                                   Epilogue second = {}, int line = __builtin_LINE()) {
    return gemm(Op::kComposite, a, {}, b, out, first, second, line);
  }
  Operation<Tensor> composite_gemm(const Tensor& a, const Tensor& b, Tensor out = {}, Epilogue first = {},
                                   Epilogue second = {}, int line = __builtin_LINE()) {
    return gemm(Op::kComposite, a, b, {}, out, first, second, line);
  }
  // The same, and the CPU waits for it.
  Operation<Tensor> dot(const Tensor& a, const HbmRef& b, Tensor out = {}, int line = __builtin_LINE()) {
    return gemm(Op::kDot, a, {}, b, out, {}, {}, line);
  }
  Operation<Tensor> dot(const Tensor& a, const Tensor& b, Tensor out = {}, int line = __builtin_LINE()) {
    return gemm(Op::kDot, a, b, {}, out, {}, {}, line);
  }
  // Folds scores s [M, T] with values v [T, d] into the state, in place and later: the kernel learns its end by
  // wait_all().
  Operation<void> softmax_pv(const Tensor& s, const HbmRef& v, const State& state, int line = __builtin_LINE()) {
    Operation<void> operation = make<void>(Op::kSoftmaxPv, line);
    Command& command = operation.command;
    command.a = read(s, "softmax_pv", line);
    command.hbm = v;
    command.state = {read(state.m, "softmax_pv", line), read(state.l, "softmax_pv", line),
                     read(state.o, "softmax_pv", line)};
    if (s.columns != v.rows || v.columns != state.o.columns || s.rows != state.o.rows || s.rows != state.m.rows) {
      refuse(line, "softmax_pv of {} with [{} x {}] into {}", text(s), v.rows, v.columns, text(state.o));
    }
    return operation;
  }

  // MATH. A second operand may be a column [rows, 1], which meets every column of the first.
  Operation<Tensor> max(const Tensor& x, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kMax, x, {}, x.rows, 1, Type::kF32, out, line);
  }
  Operation<Tensor> sum(const Tensor& x, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kSum, x, {}, x.rows, 1, Type::kF32, out, line);
  }
  Operation<Tensor> exp(const Tensor& x, Type type = Type::kF32, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kExp, x, {}, x.rows, x.columns, type, out, line);
  }
  Operation<Tensor> maximum(const Tensor& a, const Tensor& b, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kMaximum, a, b, a.rows, a.columns, Type::kF32, out, line);
  }
  Operation<Tensor> add(const Tensor& a, const Tensor& b, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kAdd, a, b, a.rows, a.columns, Type::kF32, out, line);
  }
  Operation<Tensor> sub(const Tensor& a, const Tensor& b, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kSub, a, b, a.rows, a.columns, Type::kF32, out, line);
  }
  Operation<Tensor> mul(const Tensor& a, const Tensor& b, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kMul, a, b, a.rows, a.columns, Type::kF32, out, line);
  }
  Operation<Tensor> div(const Tensor& a, const Tensor& b, Type type = Type::kF32, Tensor out = {},
                        int line = __builtin_LINE()) {
    return math(Op::kDiv, a, b, a.rows, a.columns, type, out, line);
  }
  Operation<Tensor> full(int64_t rows, int64_t columns, float value, Type type = Type::kF32,
                         int line = __builtin_LINE()) {
    Operation<Tensor> operation = math(Op::kFill, {}, {}, rows, columns, type, {}, line);
    operation.command.value = value;
    return operation;
  }
  // x [1, columns] in each of `rows` rows.
  Operation<Tensor> broadcast(const Tensor& x, int64_t rows, Tensor out = {}, int line = __builtin_LINE()) {
    if (x.rows != 1) refuse(line, "broadcast of {}: it needs one row", text(x));
    return math(Op::kBroadcast, x, {}, rows, x.columns, x.type, out, line);
  }
  Operation<Tensor> transpose(const Tensor& x, Tensor out = {}, int line = __builtin_LINE()) {
    return math(Op::kTranspose, x, {}, x.columns, x.rows, x.type, out, line);
  }
  // What a causal mask adds to scores of query positions [a, a + rows) with keys [b, b + columns): 0 where the key is
  // not later than the query, else -inf. diagonal: a - b.
  Operation<Tensor> causal_mask(int64_t rows, int64_t columns, int64_t diagonal, int line = __builtin_LINE()) {
    Operation<Tensor> operation = math(Op::kMask, {}, {}, rows, columns, Type::kF32, {}, line);
    operation.command.diagonal = diagonal;
    return operation;
  }

  Operation<void> send(Peer to, const Tensor& x, int line = __builtin_LINE()) {
    Operation<void> operation = make<void>(Op::kSend, line);
    operation.command.a = read(x, "send", line);
    operation.command.peer = to;
    return operation;
  }
  // Straight from HBM, into HBM: what is received there may be read when it has been waited for.
  Operation<void> send(Peer to, const HbmRef& x, int line = __builtin_LINE()) {
    Operation<void> operation = make<void>(Op::kSend, line);
    operation.command.hbm = x;
    operation.command.peer = to;
    return operation;
  }
  Operation<Pending> recv_async(Peer from, const HbmRef& into, int line = __builtin_LINE()) {
    Operation<Pending> operation = make<Pending>(Op::kRecvAsync, line);
    operation.command.hbm = into;
    operation.command.peer = from;
    return operation;
  }
  Operation<Tensor> recv(Peer from, int64_t rows, int64_t columns, Type type, Tensor out = {},
                         int line = __builtin_LINE()) {
    Operation<Tensor> operation = make<Tensor>(Op::kRecv, line);
    operation.command.peer = from;
    operation.command.out = place(out, rows, columns, type, "recv", line);
    return operation;
  }
  Operation<Pending> recv_async(Peer from, int64_t rows, int64_t columns, Type type, Tensor out = {},
                                int line = __builtin_LINE()) {
    Operation<Pending> operation = make<Pending>(Op::kRecvAsync, line);
    operation.command.peer = from;
    operation.command.out = place(out, rows, columns, type, "recv_async", line);
    return operation;
  }
  Operation<Tensor> wait(const Pending& pending, int line = __builtin_LINE()) {
    Operation<Tensor> operation = make<Tensor>(Op::kWait, line);
    if (!pending.hbm) check_alive(pending.tensor, "wait", line);
    operation.command.receive = pending.receive;
    operation.command.peer = pending.peer;
    operation.command.out = pending.tensor;
    operation.command.hbm = pending.hbm;
    return operation;
  }
  // For everything but receives, and messages that lie in HBM.
  Operation<void> wait_all(int line = __builtin_LINE()) { return make<void>(Op::kWaitAll, line); }

  // Shows a tensor to whoever runs the machine, under a name; no operation.
  void note(std::string_view name, const Tensor& x, int line = __builtin_LINE()) {
    read(x, "note", line);
    if (hbm_) core_.note(name, Elements{arena_.data(x), x.rows, x.columns, x.type});
  }

  // Of the machine.
  Runner& runner() { return runner_; }
  void resume() { runner_.resume(suspended_); }
  // What a send's message holds now, where there is data.
  void read_message(const Command& send, std::byte* into) {
    if (!send.a) return hbm_->read(send.hbm, into);
    std::memcpy(into, arena_.data(send.a), static_cast<size_t>(send.message_bytes()));
  }
  Arena<Use>& arena() { return arena_; }
  const std::string& kernel() const { return kernel_; }

 private:
  template <class Result>
  Operation<Result> make(Op op, int line) {
    Operation<Result> operation{*this, {}};
    operation.command.op = op, operation.command.line = static_cast<uint16_t>(line);
    return operation;
  }

  Operation<Tensor> math(Op op, const Tensor& a, const Tensor& b, int64_t rows, int64_t columns, Type type, Tensor out,
                         int line) {
    Operation<Tensor> operation = make<Tensor>(op, line);
    if (op != Op::kFill && op != Op::kMask) operation.command.a = read(a, name_of(op).data(), line);
    if (b) {
      operation.command.b = read(b, name_of(op).data(), line);
      if (b.rows != a.rows || (b.columns != a.columns && b.columns != 1)) {
        refuse(line, "{} of {} and {}", name_of(op), text(a), text(b));
      }
    }
    operation.command.out = place(out, rows, columns, out ? out.type : type, name_of(op).data(), line);
    return operation;
  }

  Operation<Tensor> gemm(Op op, const Tensor& a, const Tensor& b, const HbmRef& from, Tensor out, const Epilogue& first,
                         const Epilogue& second, int line) {
    Operation<Tensor> operation = make<Tensor>(op, line);
    Command& command = operation.command;
    command.a = read(a, "composite", line);
    if (b) command.b = read(b, "composite", line);
    command.hbm = from;
    const int32_t inner = b ? b.rows : from.rows, columns = b ? b.columns : from.columns;
    if (a.columns != inner) refuse(line, "composite of {} and [{} x {}]", text(a), inner, columns);
    command.out = place(out, a.rows, columns, out ? out.type : Type::kF32, "composite", line);
    command.epilogue[0] = first, command.epilogue[1] = second;
    for (Epilogue& epilogue : command.epilogue) {
      const Tensor& operand = epilogue.operand;
      if (epilogue.kind != EpilogueKind::kBias && epilogue.kind != EpilogueKind::kAdd) continue;
      read(operand, "composite's epilogue", line);
      if (operand.columns != columns || operand.rows != (epilogue.kind == EpilogueKind::kBias ? 1 : a.rows)) {
        refuse(line, "an epilogue of {} for [{} x {}]", text(operand), a.rows, columns);
      }
    }
    return operation;
  }

  // `out`, or a new tensor if there is none.
  Tensor place(const Tensor& out, int64_t rows, int64_t columns, Type type, const char* what, int line) {
    if (out) {
      check_alive(out, what, line);
      if (out.rows != rows || out.columns != columns || out.type != type) {
        refuse(line, "{} into {}: it needs [{} x {}]", what, text(out), rows, columns);
      }
      return out;
    }
    const Tensor tensor = arena_.allocate(rows, columns, type);
    if (!tensor) {
      refuse(line,
             "{} needs {} bytes of scratch memory for [{} x {}]: {} of {} are in use (a scratch_scope recycles them)",
             what, rows * columns * bytes_of(type), rows, columns, arena_.used(), arena_.capacity());
    }
    return tensor;
  }

  const Tensor& read(const Tensor& x, const char* what, int line) {
    check_alive(x, what, line);
    if (arena_.arriving(x)) [[unlikely]] {
      refuse(line, "{} reads {}, which is being received: wait for it first", what, text(x));
    }
    return x;
  }
  void check_alive(const Tensor& x, const char* what, int line) {
    if (!arena_.alive(x)) [[unlikely]] {
      if (!x) refuse(line, "{} uses a tensor that nothing made", what);
      refuse(line, "{} uses {}, whose scope has ended", what, text(x));
    }
  }
  void close_scope(typename Arena<Use>::Mark mark) {
    arena_.recycle(mark, [this](const Use& use) {
      if (core_.busy(use) && std::uncaught_exceptions() == 0) {
        refuse(last_line_, "a scope ends while an engine still uses one of its tensors");
      }
    });
  }

  void finish(const Command& command) {
    last_line_ = command.line;
    if (command.op == Op::kRecvAsync && command.out) arena_.set_arriving(command.out, true);
    if (command.op == Op::kWait && command.out) arena_.set_arriving(command.out, false);
    if (!hbm_) return;
    if (command.op == Op::kRecv || command.op == Op::kWait) {
      if (command.out) return core_.receive(command, arena_.data(command.out));
      workspace_.hbm.resize(static_cast<size_t>(command.message_bytes()));
      core_.receive(command, workspace_.hbm.data());
      hbm_->write(command.hbm, workspace_.hbm.data());
    } else {
      evaluate(command, operands(command), *hbm_, workspace_);
    }
  }

  Operands operands(const Command& command) {
    const auto data = [this](const Tensor& tensor) { return tensor ? arena_.data(tensor) : nullptr; };
    return {data(command.a),
            data(command.b),
            data(command.out),
            data(command.state.m),
            data(command.state.l),
            data(command.state.o),
            {data(command.epilogue[0].operand), data(command.epilogue[1].operand)}};
  }

  static std::string text(const Tensor& x) {
    return fmt::format("tensor {}.{} [{} x {}]", x.slot, x.generation, x.rows, x.columns);
  }
  template <class... Args>
  [[noreturn]] void refuse(int line, fmt::format_string<Args...> format, Args&&... args) {
    fail(ErrorKind::kUsage, "{}, line {}: {}", kernel_, line, fmt::format(format, std::forward<Args>(args)...));
  }

  Core& core_;
  std::string kernel_;
  Arena<Use> arena_;
  Hbm* hbm_;
  Workspace workspace_;
  Runner runner_;
  std::coroutine_handle<> suspended_;
  int last_line_ = 0;
};

}  // namespace coprime::tl
