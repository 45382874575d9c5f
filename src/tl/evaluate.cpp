#include "tl/evaluate.h"

#include "tl/math.h"

namespace coprime::tl {
namespace {

Elements elements(std::byte* data, const Tensor& tensor) { return {data, tensor.rows, tensor.columns, tensor.type}; }

void apply(const Epilogue& epilogue, std::byte* operand, std::vector<float>& product, int64_t columns,
           std::vector<float>& wide) {
  const int64_t count = static_cast<int64_t>(product.size());
  switch (epilogue.kind) {
    case EpilogueKind::kNone:
      return;
    case EpilogueKind::kScale:
      for (float& x : product) x *= epilogue.scale;
      return;
    case EpilogueKind::kRelu:
      for (float& x : product) x = x > 0 ? x : 0;
      return;
    case EpilogueKind::kBias:
    case EpilogueKind::kAdd:
      wide.resize(static_cast<size_t>(epilogue.operand.elements()));
      widen(elements(operand, epilogue.operand), wide.data());
      for (int64_t i = 0; i < count; ++i) {
        product[static_cast<size_t>(i)] +=
            wide[static_cast<size_t>(epilogue.kind == EpilogueKind::kBias ? i % columns : i)];
      }
      return;
  }
}

// workspace.product = a times b.
void multiply(Elements a, Elements b, Workspace& workspace) {
  workspace.a.resize(static_cast<size_t>(a.rows * a.columns));
  workspace.b.resize(static_cast<size_t>(b.rows * b.columns));
  workspace.product.resize(static_cast<size_t>(a.rows * b.columns));
  widen(a, workspace.a.data());
  widen(b, workspace.b.data());
  matrix_product(workspace.a.data(), workspace.b.data(), workspace.product.data(), a.rows, a.columns, b.columns);
}

Elements from_hbm(const HbmRef& ref, Hbm& hbm, Workspace& workspace) {
  workspace.hbm.resize(static_cast<size_t>(ref.bytes()));
  hbm.read(ref, workspace.hbm.data());
  return {workspace.hbm.data(), ref.rows, ref.columns, ref.buffer.type};
}

void composite(const Command& command, const Operands& operands, Hbm& hbm, Workspace& workspace) {
  const Elements b = command.b ? elements(operands.b, command.b) : from_hbm(command.hbm, hbm, workspace);
  multiply(elements(operands.a, command.a), b, workspace);
  for (int i = 0; i < kMaxEpilogues; ++i) {
    const auto at = static_cast<size_t>(i);
    apply(command.epilogue[i], operands.epilogue[at], workspace.product, b.columns, workspace.b);
  }
  narrow(workspace.product.data(), elements(operands.out, command.out));
}

// The operations of the kernels' softmax and update, one by one, so that opt2 has the bits of opt1.
void softmax_pv(const Command& command, const Operands& operands, Hbm& hbm, Workspace& workspace) {
  const int64_t rows = command.a.rows, columns = command.a.columns;
  const Elements s = elements(operands.a, command.a);
  const Elements m = elements(operands.m, command.state.m), l = elements(operands.l, command.state.l);
  const Elements o = elements(operands.o, command.state.o);
  workspace.scores.resize(static_cast<size_t>(rows * columns * 6));
  workspace.scalars.resize(static_cast<size_t>(rows * 4 * 3));
  const Elements shifted{workspace.scores.data(), rows, columns, Type::kF32};
  const Elements p{workspace.scores.data() + rows * columns * 4, rows, columns, Type::kBf16};
  const auto column = [&](int64_t i) { return Elements{workspace.scalars.data() + rows * 4 * i, rows, 1, Type::kF32}; };
  const Elements largest = column(0), factor = column(1), sum = column(2);

  row_max(s, largest);
  binary(Binary::kMaximum, m, largest, largest);
  binary(Binary::kSub, s, largest, shifted);
  exponential(shifted, p);
  binary(Binary::kSub, m, largest, factor);
  exponential(factor, factor);
  row_sum(p, sum);
  binary(Binary::kMul, l, factor, l);
  binary(Binary::kAdd, l, sum, l);
  multiply(p, from_hbm(command.hbm, hbm, workspace), workspace);
  binary(Binary::kMul, o, factor, o);
  binary(Binary::kAdd, o, {reinterpret_cast<std::byte*>(workspace.product.data()), o.rows, o.columns, Type::kF32}, o);
  binary(Binary::kMaximum, largest, largest, m);
}

Binary binary_of(Op op) {
  switch (op) {
    case Op::kMaximum:
      return Binary::kMaximum;
    case Op::kAdd:
      return Binary::kAdd;
    case Op::kSub:
      return Binary::kSub;
    case Op::kMul:
      return Binary::kMul;
    default:
      return Binary::kDiv;
  }
}

}  // namespace

void evaluate(const Command& command, const Operands& operands, Hbm& hbm, Workspace& workspace) {
  const Elements a = elements(operands.a, command.a), out = elements(operands.out, command.out);
  switch (command.op) {
    case Op::kLoad:
      hbm.read(command.hbm, operands.out);
      return;
    case Op::kStore:
      hbm.write(command.hbm, operands.a);
      return;
    case Op::kComposite:
    case Op::kDot:
      return composite(command, operands, hbm, workspace);
    case Op::kSoftmaxPv:
      return softmax_pv(command, operands, hbm, workspace);
    case Op::kMax:
      return row_max(a, out);
    case Op::kSum:
      return row_sum(a, out);
    case Op::kExp:
      return exponential(a, out);
    case Op::kMaximum:
    case Op::kAdd:
    case Op::kSub:
    case Op::kMul:
    case Op::kDiv:
      return binary(binary_of(command.op), a, elements(operands.b, command.b), out);
    case Op::kFill:
      return fill(out, command.value);
    case Op::kBroadcast:
      return broadcast(a, out);
    case Op::kTranspose:
      return transpose(a, out);
    case Op::kMask:
      return mask(out, command.diagonal);
    case Op::kSend:
    case Op::kRecv:
    case Op::kRecvAsync:
    case Op::kWait:
    case Op::kWaitAll:
    case Op::kRepeat:
      return;
  }
}

}  // namespace coprime::tl
