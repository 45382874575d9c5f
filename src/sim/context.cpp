#include "sim/context.h"

namespace coprime::sim {

Context::Context(const Chip& the_chip, OpLog* the_log) : chip(the_chip), log(the_log) {
  const IssueCycles& issue = chip.pe.issue;
  const auto set = [&](tl::Op op, int64_t count) { issue_ticks[static_cast<size_t>(op)] = cycles(count); };
  for (int op = 0; op < tl::kOps; ++op) {
    if (tl::is_math(static_cast<tl::Op>(op))) set(static_cast<tl::Op>(op), issue.math);
  }
  set(tl::Op::kLoad, issue.load), set(tl::Op::kStore, issue.store);
  set(tl::Op::kComposite, issue.composite), set(tl::Op::kSoftmaxPv, issue.ex_composite), set(tl::Op::kDot, issue.dot);
  set(tl::Op::kSend, issue.send), set(tl::Op::kRecv, issue.recv), set(tl::Op::kRecvAsync, issue.recv);
}

}  // namespace coprime::sim
