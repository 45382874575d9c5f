// How grids and clusters of blocks meet, as PTX names it: a grid that began before the one ahead of it had ended, and
// what the blocks of a cluster leave in each other's shared memory. Before compute capability 9.0 there is neither: a
// grid begins when the one ahead has ended, and a cluster is a block.
#pragma once

#include <cstdint>

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define COPRIME_HAS_CLUSTERS 1
#else
#define COPRIME_HAS_CLUSTERS 0
#endif

namespace coprime::ptx {

// Waits until the grids ahead in the stream have ended and what they wrote is seen. At once where nothing is ahead.
__device__ inline void wait_for_earlier_grid() {
#if COPRIME_HAS_CLUSTERS
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Once all blocks of a grid have said so, the next may begin, up to its wait_for_earlier_grid().
__device__ inline void let_next_grid_begin() {
#if COPRIME_HAS_CLUSTERS
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline unsigned cluster_blocks() {
  unsigned count = 1;
#if COPRIME_HAS_CLUSTERS
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(count));
#endif
  return count;
}

__device__ inline unsigned block_of_cluster() {
  unsigned block = 0;
#if COPRIME_HAS_CLUSTERS
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
#endif
  return block;
}

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

#if COPRIME_HAS_CLUSTERS
// A barrier in shared memory whose phase ends with one arrival and the bytes that it announced. By one thread, before
// cluster_arrive().
__device__ inline void init_cluster_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// All blocks of the cluster have begun: in two halves, by all threads.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait;" ::: "memory"); }

__device__ inline void announce_bytes(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}

// Two words to where `shared` lies in a block of the cluster, counted by what lies there where `barrier` does.
__device__ inline void send_to_block(unsigned block, void* shared, uint64_t* barrier, uint32_t low, uint32_t high) {
  uint32_t to, counted_by;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(shared_address(shared)), "r"(block));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(counted_by) : "r"(shared_address(barrier)), "r"(block));
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(to), "r"(low),
               "r"(high), "r"(counted_by)
               : "memory");
}

__device__ inline void wait_for_bytes(uint64_t* barrier, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile(
        "{ .reg .pred done; mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2; selp.u32 %0, 1, 0, done; }"
        : "=r"(done)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (done == 0);
}
#else
__device__ inline void init_cluster_barrier(uint64_t*) {}
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() {}
__device__ inline void announce_bytes(uint64_t*, uint32_t) {}
__device__ inline void send_to_block(unsigned, void*, uint64_t*, uint32_t, uint32_t) {}
__device__ inline void wait_for_bytes(uint64_t*, uint32_t) {}
#endif

}  // namespace coprime::ptx
