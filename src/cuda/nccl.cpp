#include "cuda/nccl.h"

#include <dlfcn.h>

namespace coprime {
namespace {

constexpr int kSum = 0;

}  // namespace

// By NCCL's header, whose binary interface has been stable since 2.0.
struct NcclLibrary::Functions {
  int (*get_version)(int*);
  int (*get_unique_id)(NcclId*);
  int (*comm_init_rank)(void**, int, NcclId, int);
  int (*comm_destroy)(void*);
  int (*all_reduce)(const void*, void*, size_t, int, int, void*, cudaStream_t);
  const char* (*get_error_string)(int);
};

std::shared_ptr<const NcclLibrary> NcclLibrary::load(const std::string& path) {
  void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    fail(ErrorKind::kUsage, "NCCL does not load ({}): install it, or name its file", ::dlerror());
  }
  return std::shared_ptr<const NcclLibrary>(new NcclLibrary(handle));
}

NcclLibrary::NcclLibrary(void* handle) : handle_(handle), functions_(std::make_unique<Functions>()) {
  const auto find = [&](const char* name, auto& function) {
    void* const symbol = ::dlsym(handle_, name);
    if (symbol == nullptr) fail(ErrorKind::kUsage, "this NCCL has no {}: install NCCL 2", name);
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
  };
  find("ncclGetVersion", functions_->get_version);
  find("ncclGetUniqueId", functions_->get_unique_id);
  find("ncclCommInitRank", functions_->comm_init_rank);
  find("ncclCommDestroy", functions_->comm_destroy);
  find("ncclAllReduce", functions_->all_reduce);
  find("ncclGetErrorString", functions_->get_error_string);
  check(functions_->get_version(&version_), "say its version");
}

NcclLibrary::~NcclLibrary() { ::dlclose(handle_); }

void NcclLibrary::check(int status, const char* doing) const {
  if (status != 0) fail(ErrorKind::kLink, "NCCL could not {}: {}", doing, functions_->get_error_string(status));
}

NcclId NcclLibrary::make_id() const {
  NcclId id;
  check(functions_->get_unique_id(&id), "make an id");
  return id;
}

NcclCommunicator::NcclCommunicator(std::shared_ptr<const NcclLibrary> library, const NcclId& id, int rank, int ranks)
    : library_(std::move(library)) {
  library_->check(library_->functions_->comm_init_rank(&communicator_, ranks, id, rank), "join its ranks");
}

NcclCommunicator::~NcclCommunicator() { library_->functions_->comm_destroy(communicator_); }

void NcclCommunicator::all_reduce(const void* in, void* out, int64_t elements, NcclType type,
                                  cudaStream_t stream) const {
  library_->check(library_->functions_->all_reduce(in, out, static_cast<size_t>(elements), static_cast<int>(type), kSum,
                                                   communicator_, stream),
                  "enqueue an all-reduce");
}

}  // namespace coprime
