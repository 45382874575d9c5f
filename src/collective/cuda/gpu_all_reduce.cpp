#include "collective/cuda/gpu_all_reduce.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "collective/all_reduce/add_norm_quant.h"
#include "collective/all_reduce/wht6.h"
#include "cuda/devices.h"

namespace coprime {
namespace {

constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

struct SlabNote {
  MemoryOffer offer;
  std::array<char, 16> gpu;
  int64_t slot_bytes, kept_empty;
  uint32_t first_call, epoch;
  bool lossy;
};

// One of each number of groups a thread: what norm kernels there are.
constexpr int64_t kNormColumns[] = {8, 8 * (kMaxNormThreads + 1), 8 * (2 * kMaxNormThreads + 1)};

}  // namespace

GpuAllReduce::GpuAllReduce(RankBoard& board, const GpuAllReduceSettings& settings) : settings_(settings) {
  COPRIME_CHECK(board.ranks() == settings.limits.world, "{} ranks, limits of {}", board.ranks(), settings.limits.world);
  world_.world = board.ranks();
  world_.rank = board.rank();
  world_.layout = make_slab_layout(board.ranks(), slot_bytes(settings.limits), settings.limits.lossy_bytes > 0);
  world_.record = record_.get();
  world_.timeout_ns = static_cast<uint64_t>(settings.timeout_ms) * 1'000'000;
  world_.kept_empty = std::min(settings.limits.push_bytes, world_.layout.slot_bytes);
  world_.throttle_gb_s = static_cast<float>(settings.throttle_gb_s);
  load_kernels();
  connect(board);
}

GpuAllReduce::~GpuAllReduce() { cudaDeviceSynchronize(); }

// A kernel that is loaded at its first launch makes the device wait for those that run, and they may wait for it.
void GpuAllReduce::load_kernels() {
  clusters_ = built_for_clusters();
  const auto load = [&](const Kernel& kernel) {
    resident_blocks_[{kernel.function, kernel.threads, kernel.cluster}] = resident_blocks(kernel);
  };
  for (const DType type : kTypes) {
    load(push_kernel_for(type, ranks()));
    load(two_shot_kernel_for(type));
    load(flags_kernel_for(type));
    if (type != DType::kF32) load(wht6_kernel_for(type));
  }
  for (const int64_t columns : kNormColumns) {
    for (const int64_t rows : {1, 64, 128}) load(push_norm_quant_kernel_for(ranks(), rows, columns, clusters_));
    load(add_norm_quant_kernel_for(columns));
  }
  for (const Kernel& kernel : {add_norm_rows_kernel_for(), gather_kernel_for(), fill_empty_kernel(),
                               leave_marks_kernel(), check_marks_kernel()})
    load(kernel);
  for (const auto& [kernel, blocks] : resident_blocks_) {
    if (blocks == 0) {
      fail(ErrorKind::kUsage,
           "this GPU cannot run the all-reduce kernels ({}): they are built for compute capability 9.0 "
           "(build with -DCOPRIME_CUDA_ARCHITECTURE=... for an older one)",
           cudaGetErrorString(cudaGetLastError()));
    }
  }
}

void GpuAllReduce::connect(RankBoard& board) {
  ++epoch_;
  board.barrier();  // nobody of this world has an old slab any more
  const SlabLayout& layout = world_.layout;
  slab_ = DeviceMemory();  // the old one goes first: there may be no room for two
  slab_ = DeviceMemory(static_cast<size_t>(layout.bytes()));
  check_cuda(cudaMemset(slab_.data(), 0, static_cast<size_t>(layout.payload_begin())), "clear a slab");
  check_cuda(cudaMemcpy(slab_.data() + offsetof(SlabControl, call), &settings_.first_call, 4, cudaMemcpyHostToDevice),
             "set a slab's first call");
  auto* const payload = slab_.data() + layout.payload_begin();
  check_cuda(launch(fill_empty_kernel(), 264, nullptr, payload, int64_t{layout.payload_bytes() / 16}), "empty a slab");
  check_cuda(cudaDeviceSynchronize(), "empty a slab");

  int device = 0;
  check_cuda(cudaGetDevice(&device), "ask for the current GPU");
  const SlabNote mine{.offer = offer_memory(slab_),
                      .gpu = identify_gpu(device).uuid,
                      .slot_bytes = layout.slot_bytes,
                      .kept_empty = world_.kept_empty,
                      .first_call = settings_.first_call,
                      .epoch = epoch_,
                      .lossy = layout.lossy};
  const std::vector<SlabNote> notes = board.exchange(mine);
  for (const SlabNote& note : notes) epoch_ = std::max(epoch_, note.epoch);  // a new process begins with its peers'
  ranks_on_gpu_ = static_cast<int>(std::ranges::count(notes, mine.gpu, &SlabNote::gpu));
  for (int peer = 0; peer < ranks(); ++peer) {
    const SlabNote& note = notes[static_cast<size_t>(peer)];
    if (note.slot_bytes != mine.slot_bytes || note.kept_empty != mine.kept_empty || note.lossy != mine.lossy ||
        note.first_call != mine.first_call) {
      fail(ErrorKind::kLink, "ranks {} and {} lay out their slabs differently: give all ranks the same settings",
           rank(), peer);
    }
    peers_.push_back(peer == rank() ? PeerMemory() : PeerMemory(note.offer));
    world_.slabs[peer] = peer == rank() ? slab_.data() : peers_.back().data();
  }
  verify(board);
}

void GpuAllReduce::verify(RankBoard& board) {
  const uint32_t mark = 0x5eed0000u + epoch_ * 256;
  DeviceMemory wrong(sizeof(uint32_t));
  check_cuda(cudaMemset(wrong.data(), 0, sizeof(uint32_t)), "clear a word");
  board.barrier();
  check_cuda(launch(leave_marks_kernel(), 1, nullptr, world_, mark), "write to the peers' memory");
  check_cuda(cudaDeviceSynchronize(), "write to the peers' memory");
  board.barrier();
  check_cuda(launch(check_marks_kernel(), 1, nullptr, world_, mark, wrong.data()), "read the peers' memory");
  uint32_t bits = 0;
  check_cuda(cudaMemcpy(&bits, wrong.data(), sizeof bits, cudaMemcpyDeviceToHost), "read the peers' memory");
  const std::vector<uint32_t> all = board.exchange(bits);
  for (int at = 0; at < ranks(); ++at) {
    for (int peer = 0; peer < ranks(); ++peer) {
      if ((all[static_cast<size_t>(at)] >> peer & 1) == 0) continue;
      fail(ErrorKind::kLink,
           "ranks {} and {} do not see what they write into each other's GPU memory: use the library's "
           "all-reduce",
           at, peer);
    }
  }
}

void GpuAllReduce::rebuild(RankBoard& board) {
  check_cuda(cudaDeviceSynchronize(), "wait for the last epoch's kernels");
  earlier_bail_outs_ += bail_outs_of_epoch();
  peers_.clear();
  *record_.get() = {};
  connect(board);
}

int GpuAllReduce::blocks_for(const Kernel& kernel, int64_t threads_wanted) {
  const std::tuple key(kernel.function, kernel.threads, kernel.cluster);
  auto found = resident_blocks_.find(key);
  if (found == resident_blocks_.end()) found = resident_blocks_.emplace(key, resident_blocks(kernel)).first;
  const int64_t most = found->second / ranks_on_gpu_;
  const int64_t blocks = std::min((threads_wanted + kernel.threads - 1) / kernel.threads, most);
  return static_cast<int>(std::max<int64_t>(blocks / kernel.cluster * kernel.cluster, kernel.cluster));
}

// Blocks that begin early wait, and keep their place: where ranks share a GPU, a neighbour may need it for this call.
Kernel GpuAllReduce::begun_early(Kernel kernel) const {
  kernel.begins_early = clusters_ && ranks_on_gpu_ == 1;
  return kernel;
}

void GpuAllReduce::sum(cudaStream_t stream, const AllReduceRow& row, const AllReduceCall& call, const void* in,
                       void* out) {
  const int64_t words = call.bytes() / 16;
  const auto enqueue = [&](const Kernel& kernel, int64_t threads_wanted, int64_t count) {
    check_cuda(launch(kernel, blocks_for(kernel, threads_wanted), stream, world_, in, out, count),
               "launch an all-reduce");
  };
  // One thread block for each block of flags.
  const auto flag_threads = [&](const Kernel& kernel) {
    return (call.bytes() + kFlagBlockBytes - 1) / kFlagBlockBytes * kernel.threads;
  };
  switch (row.method) {
    case AllReduceMethod::kPush:
      return enqueue(begun_early(push_kernel_for(call.type, ranks())), words, words);
    case AllReduceMethod::kTwoShot:
      return enqueue(two_shot_kernel_for(call.type), (words + ranks() - 1) / ranks(), words);
    case AllReduceMethod::kFlags: {
      const Kernel kernel = flags_kernel_for(call.type);
      return enqueue(kernel, flag_threads(kernel), words);
    }
    case AllReduceMethod::kWht6: {
      const Kernel kernel = wht6_kernel_for(call.type);
      return enqueue(kernel, flag_threads(kernel), call.elements);
    }
    case AllReduceMethod::kPushNormQuant:
      break;
  }
  COPRIME_CHECK(false, "{} gives no sum", row.name);
}

void GpuAllReduce::sum_norm_quant(cudaStream_t stream, const NormArguments& norm, const void* in) {
  COPRIME_CHECK(norm_takes(norm.columns), "{} columns", norm.columns);
  const Kernel kernel = begun_early(push_norm_quant_kernel_for(ranks(), norm.rows, norm.columns, clusters_));
  const int blocks = blocks_for(kernel, norm.rows * kernel.cluster * kernel.threads);
  check_cuda(launch(kernel, blocks, stream, world_, in, norm), "launch a fused all-reduce");
}

void GpuAllReduce::gather(cudaStream_t stream, const GatherArguments& gather, const void* in) {
  const int64_t bytes = gather.rows * gather.row_elements * 4;
  if (bytes == 0) return;
  if (bytes % 16 != 0 || bytes > settings_.limits.exact_bytes) {
    fail(ErrorKind::kUsage, "a gather of {} bytes a rank: expected a multiple of 16 up to {}", bytes,
         settings_.limits.exact_bytes);
  }
  const Kernel kernel = gather_kernel_for();
  const int64_t blocks = (bytes + kFlagBlockBytes - 1) / kFlagBlockBytes;
  check_cuda(launch(kernel, blocks_for(kernel, blocks * kernel.threads), stream, world_, in, gather),
             "launch a gather");
}

void GpuAllReduce::check() const {
  const volatile GpuErrorRecord& record = *record_.get();
  if (record.state == 0) [[likely]]
    return;
  const int reporter = record.reporter, late = record.late;
  const uint32_t call = record.call;
  if (reporter == rank()) {
    fail(ErrorKind::kLink,
         "GPU all-reduce: rank {} waited {} ms for rank {} at call {} (place {}, epoch {}): rank {} is dead, stopped, "
         "or "
         "made another call; rebuild the world",
         rank(), settings_.timeout_ms, late, call, uint64_t{record.word}, epoch_, late);
  }
  fail(ErrorKind::kLink,
       "GPU all-reduce: rank {} gave up waiting for rank {}, and rank {} ended with it at call {} (epoch {}): rebuild "
       "the "
       "world",
       reporter, late, rank(), call, epoch_);
}

uint32_t GpuAllReduce::bail_outs_of_epoch() const {
  uint32_t count = 0;
  check_cuda(cudaMemcpy(&count, slab_.data() + offsetof(SlabControl, bail_outs), 4, cudaMemcpyDeviceToHost),
             "read a slab's counter");
  return count;
}

uint64_t GpuAllReduce::bail_outs() const {
  check_cuda(cudaDeviceSynchronize(), "wait for the device");
  return earlier_bail_outs_ + bail_outs_of_epoch();
}

void add_norm_rows(cudaStream_t stream, const float* sums, View residual, const float* weight, float eps, View normed) {
  const FloatRows in_out{residual.data, residual.stride}, out{normed.data, normed.stride};
  check_cuda(launch(add_norm_rows_kernel_for(), static_cast<int>(residual.rows), stream, sums, in_out, weight, eps, out,
                    residual.columns),
             "launch a norm");
}

void add_norm_quant(cudaStream_t stream, const NormArguments& norm, const void* sums) {
  COPRIME_CHECK(norm_takes(norm.columns), "{} columns", norm.columns);
  check_cuda(launch(add_norm_quant_kernel_for(norm.columns), static_cast<int>(norm.rows), stream, sums, norm),
             "launch a norm");
}

}  // namespace coprime
