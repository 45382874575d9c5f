// A stream of the current device, and graphs that are captured from it and replayed on it.
#pragma once

#include <utility>

#include "cuda/status.h"

namespace coprime {

class CudaStream {
 public:
  CudaStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream"); }
  CudaStream(const CudaStream&) = delete;
  ~CudaStream() { cudaStreamDestroy(stream_); }

  cudaStream_t get() const { return stream_; }
  void synchronize() const { check_cuda(cudaStreamSynchronize(stream_), "wait for a stream"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaGraph {
 public:
  // What `enqueue()` puts on the stream becomes the graph; nothing runs. Other threads may use the GPU meanwhile.
  template <class Enqueue>
  CudaGraph(const CudaStream& stream, const Enqueue& enqueue) {
    check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeRelaxed), "begin a capture");
    cudaGraph_t graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      cudaStreamEndCapture(stream.get(), &graph);
      cudaGraphDestroy(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream.get(), &graph), "end a capture");
    const cudaError_t status = cudaGraphInstantiate(&graph_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(status, "instantiate a graph");
    check_cuda(cudaGraphUpload(graph_, stream.get()), "upload a graph");
  }
  CudaGraph(CudaGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  ~CudaGraph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  void launch(const CudaStream& stream) const { check_cuda(cudaGraphLaunch(graph_, stream.get()), "launch a graph"); }

 private:
  cudaGraphExec_t graph_ = nullptr;
};

class CudaEvent {
 public:
  CudaEvent() { check_cuda(cudaEventCreate(&event_), "make an event"); }
  CudaEvent(const CudaEvent&) = delete;
  ~CudaEvent() { cudaEventDestroy(event_); }

  void record(const CudaStream& stream) const { check_cuda(cudaEventRecord(event_, stream.get()), "record an event"); }
  // Of the time between two events that have both passed.
  double microseconds_since(const CudaEvent& earlier) const {
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, earlier.event_, event_), "read the time between events");
    return double{ms} * 1000;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace coprime
