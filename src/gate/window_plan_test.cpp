#include "gate/window_plan.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "gate/slot_schedule.h"

namespace coprime {
namespace {

constexpr RowClass kOne = RowClass::kOne, kEight = RowClass::kUpTo8, kMany = RowClass::kUpTo32;

QueuePairLimits driver_limits() {
  return {.max_message_bytes = DS4_TP_RDMA_MAX_MSG, .send_depth = 1024, .receive_depth = 1024, .loses_unposted = true};
}

TEST(Chunking, RowClasses) {
  EXPECT_EQ(row_class(1), kOne);
  EXPECT_EQ(row_class(2), kEight);
  EXPECT_EQ(row_class(8), kEight);
  EXPECT_EQ(row_class(9), kMany);
  EXPECT_EQ(row_class(32), kMany);
  EXPECT_EQ(row_class(33), RowClass::kBulk);
}

TEST(Chunking, CutsAtTheCap) {
  EXPECT_EQ(chunk_count(24576, 16384), 2);
  EXPECT_EQ(chunk_at(24576, 16384, 0).bytes, 16384u);
  EXPECT_EQ(chunk_at(24576, 16384, 1).begin, 16384u);
  EXPECT_EQ(chunk_at(24576, 16384, 1).bytes, 8192u);
  EXPECT_EQ(chunk_at(24576, 16384, 2).bytes, 0u);
  EXPECT_EQ(chunk_count(16384, 16384), 1);
  EXPECT_EQ(chunk_count(0, 16384), 1);
  EXPECT_EQ(chunk_count(SIZE_MAX, SIZE_MAX), 1);
}

TEST(Chunking, MessagesAreNeverEmptyAndFillTheirReceivesWhereFramesCount) {
  const QueuePairLimits plain, framed{.frame_bytes = 4096};
  EXPECT_EQ(message_bytes(0, 8192, plain), 1u);
  EXPECT_EQ(message_bytes(5, 8192, plain), 5u);
  EXPECT_EQ(message_bytes(0, 8192, framed), 8192u);
  // 20000 bytes where 40000 may come: 16384, 3616, and one byte for the third receive.
  EXPECT_EQ(total_message_bytes(20000, 40000, 16384, plain), 20001u);
  EXPECT_EQ(total_message_bytes(0, 40000, 16384, plain), 3u);
  EXPECT_EQ(total_message_bytes(20000, 40000, 16384, framed), 40000u);
}

TEST(Chunking, DecodeVectorsHaveTwoChunksAtTheDriversCap) {
  EXPECT_EQ(decode_vector_chunks(16384, 16384), 1);
  EXPECT_EQ(decode_vector_chunks(32768, 16384), 2);
  EXPECT_EQ(decode_vector_chunks(40000, 512 * 1024), 1);
  EXPECT_EQ(decode_vector_chunks(40000, 8192), 5);
  try {
    decode_vector_chunks(32769, 16384);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "gate vector 32769 bytes exceeds twice the driver's 16384 message limit");
  }
}

TEST(WindowPlan, GlmVectorsTakeTwoChunksAndAWindowOf32Receives) {
  const WindowPlan plan(glm_5_2_slots(79, 3, 1).entries(6144 * 4, 32), driver_limits());
  EXPECT_EQ(plan.service(kOne), Service::kDecodeWindow);
  EXPECT_EQ(plan.gate(0, kOne).chunks, 2);
  EXPECT_EQ(plan.gate(0, kEight).chunks, 12);
  EXPECT_EQ(plan.service(kEight), Service::kDecodeWindow);
  // 16 gates of 48 receives fit 1024.
  EXPECT_EQ(plan.service(kMany), Service::kDecodeWindow);
  EXPECT_EQ(plan.bulk_window_messages(), kBulkWindowReceives);
}

TEST(WindowPlan, ShallowQueuesLeaveManyRowsToTheVerifyWindowOrToBulk) {
  QueuePairLimits limits = driver_limits();
  limits.receive_depth = 64;
  const WindowPlan plan(glm_5_2_slots(79, 3, 1).entries(6144 * 4, 32), limits);
  EXPECT_EQ(plan.service(kOne), Service::kDecodeWindow);
  EXPECT_EQ(plan.service(kEight), Service::kVerifyWindow);
  EXPECT_EQ(plan.reason(kEight), "the receives of 16 gates take 192 of the link's depth of 64");
  EXPECT_EQ(plan.service(kMany), Service::kBulk);
  EXPECT_EQ(plan.bulk_window_messages(), 64);
  EXPECT_EQ(plan.largest_capacity(), 8u * 6144 * 4);
}

TEST(WindowPlan, PostedBytesAndFramesCount) {
  QueuePairLimits limits = driver_limits();
  limits.max_posted_bytes = 4 << 20;
  limits.frame_bytes = 4096;
  limits.receive_depth = limits.send_depth = 256;
  const WindowPlan plan(deepseek_v4_flash_slots().entries(4096 * 4, 64), limits);
  EXPECT_EQ(plan.service(kOne), Service::kDecodeWindow);  // 16 of 4 frames
  EXPECT_EQ(plan.service(kEight), Service::kVerifyWindow);
  EXPECT_EQ(plan.service(kMany), Service::kVerifyWindow);  // 2 of 128 frames, 1 MiB
  EXPECT_EQ(plan.bulk_window_messages(), 64);
  EXPECT_EQ(plan.send_messages(), 64);
  EXPECT_EQ(plan.dummy_bytes(), 16384u);
}

TEST(WindowPlan, VectorsBeyondTwoChunksOfTheDriverGoOutsideTheDecodeWindow) {
  const WindowPlan plan(SlotSchedule::all(4).entries(12288 * 4, 8), driver_limits());
  EXPECT_EQ(plan.service(kOne), Service::kVerifyWindow);
  EXPECT_EQ(plan.reason(kOne), "gate vector 49152 bytes exceeds twice the driver's 16384 message limit");
  EXPECT_EQ(plan.gate(0, kOne).chunks, 3);
  // A gather may be wider.
  const WindowPlan gather({{GateKind::kFfnInput, 0, 49152, 8}}, driver_limits());
  EXPECT_EQ(gather.service(kOne), Service::kDecodeWindow);
}

TEST(WindowPlan, WithoutACapNothingIsCut) {
  const WindowPlan plan(deepseek_v4_flash_slots().entries(4096 * 4, 512), {.send_depth = 64, .receive_depth = 64});
  EXPECT_EQ(plan.gate(0, kMany).chunks, 1);
  EXPECT_EQ(plan.service(kMany), Service::kDecodeWindow);
  EXPECT_EQ(plan.chunk_bytes(), 512u * 4096 * 4);
}

TEST(WindowPlan, ALinkThatTakesNoMessageIsRefused) {
  const auto make = [](QueuePairLimits limits) { WindowPlan(deepseek_v4_flash_slots().entries(4096 * 4, 8), limits); };
  QueuePairLimits limits = driver_limits();
  limits.receive_depth = 0;
  EXPECT_THROW(make(limits), Error);
  limits = driver_limits();
  limits.max_message_bytes = 0;
  EXPECT_THROW(make(limits), Error);
  limits = driver_limits();
  limits.frame_bytes = 4096;
  limits.send_depth = 3;
  EXPECT_THROW(make(limits), Error);
}

}  // namespace
}  // namespace coprime
