// What `coprime link --gpu` runs on the GPUs. Each says whether it could be launched.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace coprime {

inline constexpr int kMostTargets = 7;
struct PushTargets {
  void* memory[kMostTargets] = {};
  int count = 0;
};

// Pushes `bytes` (a multiple of 16) from this GPU's memory to all targets at once.
cudaError_t push_bytes(cudaStream_t stream, const void* from, const PushTargets& targets, int64_t bytes);

// One end of a ping-pong of flags: `mine` is this GPU's word, `theirs` the other's. Both words are 0 before. The end
// that serves begins. It writes the nanoseconds of all rounds to *took_ns, or 0 when the other end did not answer in
// time.
cudaError_t play_ping_pong(cudaStream_t stream, uint32_t* mine, uint32_t* theirs, bool serves, int rounds,
                           uint64_t timeout_ns, uint64_t* took_ns);

// Loads the kernels on the current device.
cudaError_t load_link_kernels();

}  // namespace coprime
