// What graphs promise beyond what tests/conformance/graphs.cc prints: what runs at once and what
// does not, faults, memory.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "tests/sim_driver/support.h"

namespace fargpu::sim_test {
namespace {

class GraphTest : public ContextTest {
 protected:
  void SetUp() override {
    ContextTest::SetUp();
    OK(cuGraphCreate(&graph_, 0));
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
  }
  CUgraphNode batch(uint32_t operation, CUdeviceptr address, uint32_t value,
                    std::vector<CUgraphNode> after = {}) {
    CUstreamBatchMemOpParams params{};
    params.operation = static_cast<CUstreamBatchMemOpType>(operation);
    params.waitValue.address = address;
    params.waitValue.value = value;
    const CUDA_BATCH_MEM_OP_NODE_PARAMS node{context_, 1, &params, 0};
    CUgraphNode made = nullptr;
    EXPECT_CU(CUDA_SUCCESS,
              cuGraphAddBatchMemOpNode(&made, graph_, after.data(), after.size(), &node));
    return made;
  }
  CUgraphNode host(CUhostFn function, void* data, std::vector<CUgraphNode> after = {}) {
    const CUDA_HOST_NODE_PARAMS params{function, data};
    CUgraphNode made = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuGraphAddHostNode(&made, graph_, after.data(), after.size(), &params));
    return made;
  }
  CUgraphExec instantiate(unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    EXPECT_CU(CUDA_SUCCESS, cuGraphInstantiateWithFlags(&exec, graph_, flags));
    return exec;
  }
  CUDA_MEM_ALLOC_NODE_PARAMS allocation(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    params.bytesize = bytes;
    return params;
  }
  CUgraph graph_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(GraphTest, NodesWithoutAPathRunAtTheSameTime) {
  PinnedWords words(2);
  // Each branch waits for what the other one writes.
  const CUgraphNode first = batch(CU_STREAM_MEM_OP_WRITE_VALUE_32, words.device(0), 1);
  const CUgraphNode second = batch(CU_STREAM_MEM_OP_WRITE_VALUE_32, words.device(1), 1);
  batch(CU_STREAM_MEM_OP_WAIT_VALUE_32, words.device(1), 1, {first});
  batch(CU_STREAM_MEM_OP_WAIT_VALUE_32, words.device(0), 1, {second});
  const CUgraphExec exec = instantiate();
  OK(cuGraphLaunch(exec, stream_));
  OK(cuStreamSynchronize(stream_));
  OK(cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, LaunchesOfOneExecutableGraphNeverOverlap) {
  struct State {
    std::atomic<int> inside{0}, most{0}, launches{0};
  } state;
  const auto enter = [](void* data) {
    auto* seen = static_cast<State*>(data);
    const int inside = ++seen->inside;
    if (inside > seen->most) seen->most = inside;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  };
  const auto leave = [](void* data) {
    --static_cast<State*>(data)->inside;
    ++static_cast<State*>(data)->launches;
  };
  host(leave, &state, {host(enter, &state)});
  const CUgraphExec exec = instantiate();
  CUstream other = nullptr;
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  for (int i = 0; i < 10; ++i) OK(cuGraphLaunch(exec, i % 2 == 0 ? stream_ : other));
  OK(cuGraphExecDestroy(exec));  // launches under way go on
  OK(cuCtxSynchronize());
  EXPECT_EQ(state.most, 1);
  EXPECT_EQ(state.launches, 10);
}

// Else the stream would wait for itself.
TEST_F(GraphTest, AWaitForAnEventIsNotAheadOfTheLaunchThatRecordsIt) {
  CUevent event = nullptr;
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  CUgraphNode last = nullptr;
  OK(cuGraphAddEventRecordNode(&last, graph_, nullptr, 0, event));
  // So that a launch takes a while.
  for (int i = 0; i < 1000; ++i) {
    const CUgraphNode before = last;
    OK(cuGraphAddEmptyNode(&last, graph_, &before, 1));
  }
  const CUgraphExec exec = instantiate();
  std::atomic<bool> ends{false};
  std::thread waits([&] {
    EXPECT_CU(CUDA_SUCCESS, cuCtxSetCurrent(context_));
    while (!ends) {
      EXPECT_CU(CUDA_SUCCESS, cuStreamWaitEvent(stream_, event, 0));
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  });
  for (int i = 0; i < 200; ++i) EXPECT_CU(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
  ends = true;
  waits.join();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (cuStreamQuery(stream_) == CUDA_ERROR_NOT_READY) {
    if (std::chrono::steady_clock::now() > limit) {
      std::fputs("the stream waits for itself\n", stderr);
      std::_Exit(1);  // the context could not end
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  OK(cuGraphExecDestroy(exec));
  OK(cuEventDestroy(event));
}

TEST_F(GraphTest, AFaultStaysAndStopsLaterNodes) {
  CUDA_KERNEL_NODE_PARAMS params{};
  params.func = function("trap");
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  CUgraphNode node = nullptr;
  OK(cuGraphAddKernelNode(&node, graph_, nullptr, 0, &params));
  std::atomic<int> calls{0};
  host([](void* data) { ++*static_cast<std::atomic<int>*>(data); }, &calls, {node});
  const CUgraphExec exec = instantiate();
  OK(cuGraphLaunch(exec, stream_));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_ERROR_LAUNCH_FAILED, cuGraphLaunch(exec, stream_));
  EXPECT_EQ(calls, 0);
  OK(cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, MemoryCountsFromTheLaunchToTheFree) {
  size_t before = 0, after = 0, total = 0;
  auto params = allocation(kMemory / 2);
  CUgraphNode node = nullptr;
  OK(cuMemGetInfo(&before, &total));
  OK(cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params));
  OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  // Addresses only: a copy to them is a wrong call before the launch.
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(params.dptr, params.dptr + 64, 4));
  const CUgraphExec exec = instantiate();
  OK(cuGraphLaunch(exec, stream_));
  OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before - after, kMemory / 2);
  OK(cuMemcpyDtoD(params.dptr, params.dptr + 64, 4));
  OK(cuMemFreeAsync(params.dptr, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuMemcpyDtoD(params.dptr, params.dptr + 64, 4));
  OK(cuDeviceGraphMemTrim(0));
  OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  OK(cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, ALaunchWithoutEnoughMemoryFailsAndTakesNothing) {
  size_t before = 0, after = 0, total = 0;
  CUgraphNode node = nullptr;
  auto small = allocation(4096), large = allocation(kMemory - 4096);
  OK(cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &small));
  OK(cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &large));
  const CUdeviceptr p = allocate(1 << 20);
  const CUgraphExec exec = instantiate();
  OK(cuMemGetInfo(&before, &total));
  EXPECT_CU(CUDA_ERROR_OUT_OF_MEMORY, cuGraphLaunch(exec, stream_));
  OK(cuDeviceGraphMemTrim(0));
  OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
  OK(cuMemFree(p));
  EXPECT_CU(CUDA_SUCCESS, cuGraphLaunch(exec, stream_));
  OK(cuStreamSynchronize(stream_));
  OK(cuMemFree(small.dptr));
  OK(cuMemFree(large.dptr));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph_));
  // Graphs keep memory also after their end.
  OK(cuMemGetInfo(&after, &total));
  EXPECT_LT(after, 4096u);
  OK(cuDeviceGraphMemTrim(0));
  OK(cuMemGetInfo(&after, &total));
  EXPECT_EQ(after, before + (1 << 20));
}

// A real driver may crash on these.
TEST_F(GraphTest, HandlesOfWhatIsGoneAreRefused) {
  CUgraphNode node = nullptr, other = nullptr;
  OK(cuGraphAddEmptyNode(&node, graph_, nullptr, 0));
  OK(cuGraphAddEmptyNode(&other, graph_, nullptr, 0));
  const CUgraphExec exec = instantiate();
  OK(cuGraphDestroyNode(other));
  CUgraphNodeType type;
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(other, &type));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddDependencies_v2(graph_, &node, &other, nullptr, 1));
  OK(cuGraphDestroy(graph_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(graph_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphNodeGetType(node, &type));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode(&node, graph_, nullptr, 0));
  OK(cuGraphExecDestroy(exec));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch(exec, stream_));
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, ADotFileHasNodesAndEdges) {
  const CUgraphNode first = host([](void*) {}, nullptr);
  host([](void*) {}, nullptr, {first});
  const std::string path = testing::TempDir() + "graph.dot";
  OK(cuGraphDebugDotPrint(graph_, path.c_str(), 0));
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(text.find("digraph"), std::string::npos);
  EXPECT_NE(text.find("HOST"), std::string::npos);
  EXPECT_NE(text.find("\"graph_0_node_0\" -> \"graph_0_node_1\""), std::string::npos);
  EXPECT_CU(CUDA_ERROR_INVALID_VALUE, cuGraphDebugDotPrint(graph_, nullptr, 0));
  EXPECT_CU(CUDA_ERROR_OPERATING_SYSTEM, cuGraphDebugDotPrint(graph_, "/nowhere/graph.dot", 0));
}

TEST_F(GraphTest, CapturedCopiesOfArraysBecomeNodesThatNameThem) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  descriptor.Width = 8;
  descriptor.Height = 4;
  descriptor.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  descriptor.NumChannels = 1;
  CUarray array = nullptr;
  OK(cuArray3DCreate(&array, &descriptor));
  const CUdeviceptr memory = allocate(32), back = allocate(32);
  OK(cuMemsetD32(memory, 7, 8));
  OK(cuMemsetD32(back, 0, 8));
  CUDA_MEMCPY2D in{}, out{};
  in.srcMemoryType = out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  in.dstMemoryType = out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  in.srcDevice = memory, in.dstArray = array;
  out.dstDevice = back, out.srcArray = array;
  in.dstXInBytes = out.srcXInBytes = 8, in.dstY = out.srcY = 1;
  in.WidthInBytes = out.WidthInBytes = 16, in.Height = out.Height = 2;
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuMemcpy2DAsync(&in, stream_));
  OK(cuMemcpy2DAsync(&out, stream_));
  CUgraph captured = nullptr;
  OK(cuStreamEndCapture(stream_, &captured));
  EXPECT_EQ(read_word(back), 0u) << "nothing has run yet";
  CUgraphNode nodes[2] = {};
  size_t count = 2;
  OK(cuGraphGetNodes(captured, nodes, &count));
  ASSERT_EQ(count, 2u);
  for (const CUgraphNode node : nodes) {
    CUDA_MEMCPY3D copy{};
    OK(cuGraphMemcpyNodeGetParams(node, &copy));
    const bool to = copy.dstMemoryType == CU_MEMORYTYPE_ARRAY;
    EXPECT_EQ(to ? copy.dstArray : copy.srcArray, array);
    EXPECT_EQ(to ? copy.dstXInBytes : copy.srcXInBytes, 8u);
    EXPECT_EQ(to ? copy.dstY : copy.srcY, 1u);
  }
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiateWithFlags(&exec, captured, 0));
  OK(cuGraphLaunch(exec, stream_));
  OK(cuStreamSynchronize(stream_));
  EXPECT_EQ(read_word(back), 7u);
  EXPECT_EQ(read_word(back + 28), 7u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(captured));
  OK(cuArrayDestroy(array));
}

TEST_F(GraphTest, ACapturedKernelBelongsToTheContextOfItsStream) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  CUfunction expected = nullptr;
  OK(cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cuLibraryGetKernel(&kernel, library, "bump"));
  OK(cuKernelGetFunction(&expected, kernel));
  CUdevice device = 0;
  CUcontext other = nullptr;
  OK(cuDeviceGet(&device, 1));
  OK(cuCtxCreate_v4(&other, nullptr, 0, device));
  OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream_, nullptr,
                    nullptr));
  CUgraph captured = nullptr;
  OK(cuStreamEndCapture(stream_, &captured));
  CUgraphNode node = nullptr;
  size_t count = 1;
  OK(cuGraphGetNodes(captured, &node, &count));
  CUDA_KERNEL_NODE_PARAMS params{};
  OK(cuGraphKernelNodeGetParams_v2(node, &params));
  EXPECT_EQ(params.func, expected);
  OK(cuGraphDestroy(captured));
  OK(cuCtxDestroy(other));
  OK(cuLibraryUnload(library));
}

TEST_F(GraphTest, AStreamThatIsDestroyedEndsItsCapture) {
  CUstream other = nullptr;
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture(other, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuStreamDestroy(other));
  OK(cuMemFree(allocate(64)));  // nothing is captured any more
  OK(cuCtxSynchronize());
}

}  // namespace
}  // namespace fargpu::sim_test
