// What a kernel must not do is an error that names kernel, place, line and tensor.
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/machine.h"

namespace coprime::sim {
namespace {

using M = tl::Tl<Processor>;
using tl::Level;
using tl::Task;
using tl::Tensor;
using tl::Type;

constexpr tl::Buffer kBuffer{1, Type::kBf16};

void expect_refusal(Task (*kernel)(M&), const std::string& words) {
  Machine machine(ahbm_chip(), 0, 1, nullptr, true);
  try {
    machine.launch({0, 0, 0}, "kernel", nullptr, kernel);
    machine.run();
    ADD_FAILURE() << "it ran: " << words;
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("kernel on SIP 0 CUBE 0 PE 0, line "), std::string::npos) << text;
    EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

Task uses_what_was_recycled(M& tl) {
  Tensor x;
  {
    const auto scope = tl.scratch_scope();
    x = co_await tl.full(8, 8, 0);
  }
  co_await tl.exp(x);
}

Task keeps_what_it_needs(M& tl) {
  Tensor x;
  {
    auto scope = tl.scratch_scope();
    co_await tl.full(8, 8, 0);
    x = co_await tl.full(8, 8, 1);
    scope.keep(x);
  }
  co_await tl.exp(x);
}

Task views_other_bytes(M& tl) {
  const Tensor x = co_await tl.full(8, 8, 0);
  co_await tl.exp(tl.view(x, 8, 9));
}

Task reads_what_arrives(M& tl) {
  const tl::Peer peer = tl.neighbour(Level::kPe, attention::Direction::kEast);
  const tl::Pending pending = co_await tl.recv_async(peer, 8, 8, Type::kF32);
  co_await tl.exp(pending.tensor);
}

Task goes_past_the_edge(M& tl) {
  const Tensor x = co_await tl.full(8, 8, 0);
  co_await tl.send(tl.neighbour(Level::kPe, attention::Direction::kNorth), x);
}

Task multiplies_what_does_not_fit(M& tl) {
  const Tensor x = co_await tl.full(8, 64, 0, Type::kBf16);
  co_await tl.composite_gemm(x, tl.ref(kBuffer, 0, 63, 32));
}

Task recycles_what_an_engine_writes(M& tl) {
  const Tensor x = co_await tl.full(8, 64, 0, Type::kBf16);
  const auto scope = tl.scratch_scope();
  co_await tl.composite_gemm(x, tl.ref(kBuffer, 0, 64, 32));
}

Task fills_the_arena(M& tl) {
  for (int i = 0; i < 1000; ++i) co_await tl.full(64, 64, 0);
}

TEST(KernelErrors, NameKernelLineAndTensor) {
  expect_refusal(uses_what_was_recycled, "exp uses tensor 0.1 [8 x 8], whose scope has ended");
  expect_refusal(views_other_bytes, "view of tensor 0.1 [8 x 8] as [8 x 9]");
  expect_refusal(reads_what_arrives, "which is being received: wait for it first");
  expect_refusal(goes_past_the_edge, "there is no neighbour N");
  expect_refusal(multiplies_what_does_not_fit, "composite of tensor 0.1 [8 x 64] and [63 x 32]");
  expect_refusal(recycles_what_an_engine_writes, "a scope ends while an engine still uses one of its tensors");
  expect_refusal(fills_the_arena, "bytes of scratch memory");
}

TEST(KernelErrors, WhatAScopeKeepsMayBeUsedBehindIt) {
  Machine machine(ahbm_chip(), 0, 1, nullptr, true);
  machine.launch({0, 0, 0}, "kernel", nullptr, keeps_what_it_needs);
  EXPECT_GT(machine.run().end.time, 0u);
}

}  // namespace
}  // namespace coprime::sim
