// NCCL, loaded at run time: the all-reduce for what no kernel here takes, and the baseline of the benchmark. Its order
// of additions is its own.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"

namespace coprime {

using NcclId = std::array<char, 128>;

class NcclLibrary {
 public:
  // Error(kUsage) saying what to do when there is none.
  static std::shared_ptr<const NcclLibrary> load(const std::string& path = "libnccl.so.2");
  ~NcclLibrary();

  int version() const { return version_; }  // 22803: 2.28.3
  NcclId make_id() const;                   // by one rank, for all

 private:
  friend class NcclCommunicator;
  explicit NcclLibrary(void* handle);
  void check(int status, const char* doing) const;

  struct Functions;
  void* handle_;
  std::unique_ptr<Functions> functions_;
  int version_ = 0;
};

enum class NcclType : int { kF16 = 6, kF32 = 7, kBF16 = 9 };

class NcclCommunicator {
 public:
  // With all ranks, each on its current device.
  NcclCommunicator(std::shared_ptr<const NcclLibrary> library, const NcclId& id, int rank, int ranks);
  NcclCommunicator(const NcclCommunicator&) = delete;
  ~NcclCommunicator();

  void all_reduce(const void* in, void* out, int64_t elements, NcclType type, cudaStream_t stream) const;

 private:
  std::shared_ptr<const NcclLibrary> library_;
  void* communicator_ = nullptr;
};

}  // namespace coprime
