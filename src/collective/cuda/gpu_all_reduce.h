// One GPU rank's end of the one-shot all-reduces: its slab, its peers' slabs, and what is enqueued on them.
//
// Every rank makes the same calls in the same order, each on one stream of its own; what is captured into a graph
// counts when it is replayed. Nothing here allocates, waits or reads back between construction and the next rebuild().
//
// Errors: a kernel that waits too long for a peer, or that finds a peer's word that it did, ends without a sum, and all
// later kernels of this rank end at once; check(), once a step, throws what they found. Nothing is summed after that
// until all ranks rebuild(). A graph knows the slabs of its epoch: capture it again after a rebuild.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "collective/all_reduce/table.h"
#include "collective/cuda/gather_arguments.h"
#include "collective/cuda/kernels.h"
#include "collective/cuda/norm_arguments.h"
#include "collective/cuda/slab.h"
#include "collective/rank_board.h"
#include "cuda/ipc.h"
#include "cuda/memory.h"
#include "tensor/view.h"

namespace coprime {

struct GpuAllReduceSettings {
  AllReduceLimits limits;
  int timeout_ms = 750;      // of one launch's waits
  uint32_t first_call = 1;   // of an epoch
  double throttle_gb_s = 0;  // of pushes with flags; 0: none
};

class GpuAllReduce {
 public:
  // On the current device, together with all ranks of the board. Memory is exchanged, and every pair's is written and
  // read back. Error(kLink) naming the pair that does not work; Error(kUsage) when there is no room for the slab.
  GpuAllReduce(RankBoard& board, const GpuAllReduceSettings& settings);
  GpuAllReduce(const GpuAllReduce&) = delete;
  ~GpuAllReduce();

  int rank() const { return world_.rank; }
  int ranks() const { return world_.world; }
  uint32_t epoch() const { return epoch_; }
  int64_t scratch_bytes() const { return world_.layout.bytes(); }

  AllReduceChoice choose(const AllReduceCall& call) const { return choose_all_reduce(settings_.limits, call); }

  // out = the sum over all ranks, `call.elements` of call.type; in may be out. `row` is what choose() gave, never null,
  // nor the fused one.
  void sum(cudaStream_t stream, const AllReduceRow& row, const AllReduceCall& call, const void* in, void* out);

  // The fused row: `in` is [norm.rows, norm.columns] bf16; its sum goes through add_norm_quant.h and nowhere else.
  void sum_norm_quant(cudaStream_t stream, const NormArguments& norm, const void* in);

  // `in` is this rank's slot. Error(kUsage) when it is larger than an exact row takes, or no multiple of 16 bytes.
  void gather(cudaStream_t stream, const GatherArguments& gather, const void* in);

  // Error(kLink) when a kernel of this rank ended without a sum: "rank 0 waited 750 ms for rank 2 ...". The same error
  // until the rebuild. Costs a load.
  void check() const;

  // Launches that ended without a sum, in this epoch and those before. Waits for the device.
  uint64_t bail_outs() const;

  // With all ranks of the world, of which some may be new processes: waits for this device's kernels, lets go of the
  // old slabs, and begins a new epoch with new ones, so that what a rank of the old epoch still pushes meets nothing.
  void rebuild(RankBoard& board);

  const GpuWorld& world() const { return world_; }
  int blocks_for(const Kernel& kernel, int64_t threads_wanted);  // of a grid that stays resident beside its neighbours

 private:
  Kernel begun_early(Kernel kernel) const;
  void connect(RankBoard& board);
  void verify(RankBoard& board);
  void load_kernels();
  uint32_t bail_outs_of_epoch() const;

  GpuAllReduceSettings settings_;
  uint32_t epoch_ = 0;
  uint64_t earlier_bail_outs_ = 0;
  int ranks_on_gpu_ = 1;
  bool clusters_ = false;                                             // the kernels have them
  std::map<std::tuple<const void*, int, int>, int> resident_blocks_;  // by kernel, threads and cluster
  DeviceMemory slab_;
  std::vector<PeerMemory> peers_;  // by rank; this rank's own is empty
  PinnedValue<GpuErrorRecord> record_;
  GpuWorld world_;
};

// A norm after any other all-reduce, the same bits as the fused one's.
void add_norm_quant(cudaStream_t stream, const NormArguments& norm, const void* sums);
// A gate's epilogue in f32, the bits of Device::add_norm. `sums` has no gaps.
void add_norm_rows(cudaStream_t stream, const float* sums, View residual, const float* weight, float eps, View normed);

}  // namespace coprime
