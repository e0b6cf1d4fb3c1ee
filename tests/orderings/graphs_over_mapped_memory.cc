// The edges of a graph order what host nodes, kernels and copies do to host memory that device code
// uses by its address. Graphs are launched behind each other without a wait, the same one several
// times and two in turn.
#include <vector>

#include "tests/orderings/check.h"

namespace {

constexpr unsigned kWords = 20'000, kStride = 3;

struct Memory {
  unsigned* mapped;
  unsigned* registered;
  unsigned launch = 0, wrong = 0;
};

unsigned filled(const Memory& memory, unsigned i) { return memory.launch * 11 + i; }

// Ahead of a kernel for each of both memories.
void CUDA_CB fill(void* given) {
  Memory& memory = *static_cast<Memory*>(given);
  ++memory.launch;
  for (unsigned i = 0; i < kWords; i += kStride) {
    memory.mapped[i] = filled(memory, i);
    memory.registered[i] = filled(memory, i) + 1;
  }
}

// Behind them; changes what the next kernel reads.
void CUDA_CB change(void* given) {
  Memory& memory = *static_cast<Memory*>(given);
  for (unsigned i = 0; i < kWords; i += kStride) {
    memory.wrong += memory.mapped[i] == filled(memory, i) * 3 + 2 ? 0 : 1;
    memory.wrong += memory.registered[i] == (filled(memory, i) + 1) * 3 + 4 ? 0 : 1;
    memory.mapped[i] -= 1;
  }
}

bool is_last(const Memory& memory, unsigned i) {
  const unsigned expected = (filled(memory, i) * 3 + 1) * 5 + 6;
  return memory.mapped[i] == expected && memory.registered[i] == expected;
}

// Behind the copy from one to the other.
void CUDA_CB compare(void* given) {
  Memory& memory = *static_cast<Memory*>(given);
  for (unsigned i = 0; i < kWords; i += kStride) memory.wrong += is_last(memory, i) ? 0 : 1;
}

}  // namespace

int main() {
  begin();
  use_primary();
  const CUfunction scale = kernel_of(load_kernels(), "scale_words");
  Memory memory{};
  void* mapped = nullptr;
  CU(cuMemHostAlloc(&mapped, kWords * sizeof(unsigned), CU_MEMHOSTALLOC_DEVICEMAP));
  memory.mapped = static_cast<unsigned*>(mapped);
  std::vector<unsigned> ordinary(kWords + 5);
  memory.registered = ordinary.data() + 5;
  CU(cuMemHostRegister(memory.registered, kWords * sizeof(unsigned), CU_MEMHOSTREGISTER_DEVICEMAP));
  CUdeviceptr at_mapped, at_registered;
  CU(cuMemHostGetDevicePointer(&at_mapped, memory.mapped, 0));
  CU(cuMemHostGetDevicePointer(&at_registered, memory.registered, 0));
  const CUstream stream = make_stream();
  const auto multiply = [&](CUdeviceptr at, unsigned factor, unsigned add) {
    unsigned words = kWords;
    void* values[] = {&at, &at, &words, &factor, &add};
    CU(cuLaunchKernel(scale, 1, 1, 1, 256, 1, 1, 0, stream, values, nullptr));
  };

  step("two graphs");
  CUgraphExec graphs[2];
  for (int by_host_address = 0; by_host_address < 2; ++by_host_address) {
    CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    CU(cuLaunchHostFunc(stream, fill, &memory));
    multiply(at_mapped, 3, 2);
    multiply(at_registered, 3, 4);
    CU(cuLaunchHostFunc(stream, change, &memory));
    multiply(at_mapped, 5, 6);
    if (by_host_address != 0) {
      CU(cuMemcpyAsync(reinterpret_cast<CUdeviceptr>(memory.registered),
                       reinterpret_cast<CUdeviceptr>(memory.mapped), kWords * sizeof(unsigned),
                       stream));
    } else {
      CU(cuMemcpyDtoDAsync(at_registered, at_mapped, kWords * sizeof(unsigned), stream));
    }
    CU(cuLaunchHostFunc(stream, compare, &memory));
    CUgraph graph;
    CU(cuStreamEndCapture(stream, &graph));
    CU(cuGraphInstantiate(&graphs[by_host_address], graph, 0));
    CU(cuGraphDestroy(graph));
  }

  // Natively a copy node does not outlive the registration; a kernel does.
  CU(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  multiply(at_registered, 7, 8);
  CUgraph captured;
  CU(cuStreamEndCapture(stream, &captured));
  CUgraphExec const kernel_alone = instantiate(captured);
  CU(cuGraphLaunch(kernel_alone, stream));
  CU(cuStreamSynchronize(stream));

  step("launches without a wait");
  unsigned launches = 0;
  for (unsigned round = 0; round < 20; ++round) {
    const bool in_turn = round % 2 == 0;
    for (unsigned k = 0; k <= round % 4; ++k, ++launches)
      CU(cuGraphLaunch(graphs[(round + (in_turn ? k : 0)) % 2], stream));
    CU(cuStreamSynchronize(stream));
    HOLDS(memory.launch == launches);
    if (memory.wrong != 0) wrong("round %u: %u words were others", round, memory.wrong);
    for (unsigned i = 0; i < kWords; i += kStride) HOLDS(is_last(memory, i));
  }

  step("registered again, without DEVICEMAP");
  CU(cuMemHostUnregister(memory.registered));
  CU(cuMemHostRegister(memory.registered, kWords * sizeof(unsigned), 0));
  for (unsigned i = 0; i < kWords; i += kStride) memory.registered[i] = i;
  CU(cuGraphLaunch(kernel_alone, stream));
  CU(cuStreamSynchronize(stream));
  for (unsigned i = 0; i < kWords; i += kStride) HOLDS(memory.registered[i] == i * 7 + 8);
  right();
}
