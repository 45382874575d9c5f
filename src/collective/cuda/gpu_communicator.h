// The gates of a GPU rank: the calls of HostCommunicator, enqueued on one stream, with the same bits. Matrices are in
// the GPU's memory, without gaps where they are BF16.
//
// A gate goes by the row that the table chooses; to the library (NCCL, whose order of additions is its own) where no
// row takes it and there is one. Errors of a step are thrown when the next one begins, or by check(). A captured step
// may be replayed: begin_step() is called for the capture alone, and check() after each replay.
#pragma once

#include <optional>

#include "collective/communicator.h"
#include "collective/cuda/gpu_all_reduce.h"
#include "cuda/nccl.h"
#include "cuda/stream.h"

namespace coprime {

class GpuCommunicator final : public Communicator {
 public:
  // `library` may be null. What is given must outlive the communicator.
  GpuCommunicator(GpuAllReduce& all_reduce, const CudaStream& stream, GateSchedule schedule,
                  NcclCommunicator* library = nullptr);

  int rank() const override { return all_reduce_.rank(); }
  int ranks() const override { return all_reduce_.ranks(); }
  TypedView typed_slot(int entry, int rows) override;
  // Error(kUsage) when neither a row nor a library takes the gate.
  void reduce(int entry, int rows, const Epilogue& epilogue) override;
  void all_gather(int entry, int rows, std::span<const GatherPart> parts, View out,
                  const Epilogue* epilogue = nullptr) override;
  void begin_step(int rows, int next_rows) override;

  // After the stream has been waited for.
  void check() const { all_reduce_.check(); }

 private:
  const GateEntry& begin_gate(int entry, int rows);
  void add_norm(const void* sums, const Epilogue& epilogue);
  [[noreturn]] void break_off(const std::string& message);

  GpuAllReduce& all_reduce_;
  const CudaStream& stream_;
  const GateSchedule schedule_;
  NcclCommunicator* library_;
  DeviceMemory slot_, sum_;
  GateOrder order_;
  std::optional<Error> error_;
};

}  // namespace coprime
