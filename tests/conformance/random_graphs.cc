// Random graphs with memory of their own, whose copies come to use other memory time and again:
// pageable, pinned and the device's, and that of the graph. In between they are instantiated, or
// update the executable graph; after each change they run.
#include <array>
#include <random>

#include "tests/conformance/graphs.h"

namespace {

using namespace in_world;

constexpr size_t kBytes = 1024, kPiece = 64;
constexpr int kGraphs = 150, kChanges = 8;

using Bytes = std::array<unsigned char, kBytes>;

enum Place { kPageable, kPinned, kDevice, kOfGraph };
constexpr struct {
  Place from, to;
} kKinds[] = {{kPageable, kOfGraph}, {kPinned, kOfGraph},    {kDevice, kOfGraph},
              {kOfGraph, kPageable}, {kOfGraph, kDevice},    {kOfGraph, kPinned},
              {kDevice, kDevice},    {kPageable, kPageable}, {kPageable, kDevice}};

Bytes from_pageable, to_pageable;
unsigned char *from_pinned, *to_pinned;
CUdeviceptr from_device, to_device;
std::mt19937 any;  // the same numbers everywhere, unlike the standard's distributions

unsigned below(unsigned n) { return static_cast<unsigned>(any() % n); }

// The same piece of both ends.
CUDA_MEMCPY3D copy_of(unsigned kind, CUdeviceptr of_graph, size_t piece) {
  const auto [from, to] = kKinds[kind];
  const size_t at = piece * kPiece;
  CUDA_MEMCPY3D copy = row(kPiece);
  const bool from_host = from == kPageable || from == kPinned;
  copy.srcMemoryType = from_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.srcHost = from_host ? (from == kPinned ? from_pinned : from_pageable.data()) + at : nullptr;
  copy.srcDevice = from_host ? 0 : (from == kDevice ? from_device : of_graph) + at;
  const bool to_host = to == kPageable || to == kPinned;
  copy.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
  copy.dstHost = to_host ? (to == kPinned ? to_pinned : to_pageable.data()) + at : nullptr;
  copy.dstDevice = to_host ? 0 : (to == kDevice ? to_device : of_graph) + at;
  return copy;
}

void run(CUgraphExec exec) {
  to_pageable.fill(0);
  std::fill_n(to_pinned, kBytes, 0);
  NEED(cuMemsetD8(to_device, 0, kBytes));
  NEED(cuCtxSynchronize());
  NEED(cuGraphLaunch(exec, stream));
  NEED(cuStreamSynchronize(stream));
  Bytes device;
  NEED(cuMemcpyDtoH(device.data(), to_device, kBytes));
  std::printf("    pageable %08x pinned %08x device %08x\n", checksum(to_pageable.data(), kBytes),
              checksum(to_pinned, kBytes), checksum(device.data(), kBytes));
}

class RandomGraph {
 public:
  RandomGraph() {
    NEED(cuGraphCreate(&graph_, 0));
    auto memory = memory_params(kBytes);
    CUgraphNode last, next;
    NEED(cuGraphAddMemAllocNode(&last, graph_, nullptr, 0, &memory));
    memory_ = memory.dptr;
    const auto filled = memset_params(memory_, 0x77777777, kBytes / 4);
    NEED(cuGraphAddMemsetNode(&next, graph_, &last, 1, &filled, context));
    const unsigned count = 2 + below(3);
    for (unsigned i = 0; i < count; ++i) {
      const CUDA_MEMCPY3D copy = copy_of(below(std::size(kKinds)), memory_, i);
      last = next;
      NEED(cuGraphAddMemcpyNode(&next, graph_, &last, 1, &copy, context));
      copies_.push_back(next);
    }
    if (below(2) == 0)
      flags_ = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    else
      NEED(cuGraphAddMemFreeNode(&last, graph_, &next, 1, memory_));
    NEED(cuGraphInstantiate(&exec_, graph_, flags_));
    run(exec_);
  }
  ~RandomGraph() {
    NEED(cuGraphExecDestroy(exec_));
    NEED(cuGraphDestroy(graph_));
  }
  RandomGraph(const RandomGraph&) = delete;
  RandomGraph& operator=(const RandomGraph&) = delete;

  void change() {
    const unsigned i = below(static_cast<unsigned>(copies_.size()));
    const unsigned kind = below(std::size(kKinds));
    std::printf("  copy %u is of kind %u\n", i, kind);
    const CUDA_MEMCPY3D copy = copy_of(kind, memory_, i);
    NEED(cuGraphMemcpyNodeSetParams(copies_[i], &copy));
    // A driver decides which updates it takes.
    CUgraphExecUpdateResultInfo info{};
    if (below(2) == 0 || cuGraphExecUpdate(exec_, graph_, &info) != CUDA_SUCCESS) {
      NEED(cuGraphExecDestroy(exec_));
      NEED(cuGraphInstantiate(&exec_, graph_, flags_));
    }
    run(exec_);
  }

 private:
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUdeviceptr memory_ = 0;
  std::vector<CUgraphNode> copies_;
  cuuint64_t flags_ = 0;
};

}  // namespace

int main() {
  set_up();
  void* pinned = nullptr;
  NEED(cuMemAllocHost(&pinned, 2 * kBytes));
  from_pinned = static_cast<unsigned char*>(pinned);
  to_pinned = from_pinned + kBytes;
  NEED(cuMemAlloc(&from_device, kBytes));
  NEED(cuMemAlloc(&to_device, kBytes));
  for (size_t i = 0; i < kBytes; ++i) from_pageable[i] = static_cast<unsigned char>(7 * i + 1);
  std::fill_n(from_pinned, kBytes, 0x55);
  NEED(cuMemsetD8(from_device, 0x33, kBytes));
  for (int i = 0; i < kGraphs; ++i) {
    std::printf("graph %d\n", i);
    any.seed(static_cast<unsigned>(i));
    RandomGraph graph;
    for (int j = 0; j < kChanges; ++j) graph.change();
  }
  return 0;
}
