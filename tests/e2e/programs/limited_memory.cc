// limited_memory WHAT: takes memory of one kind, 64 MiB at a time, until there is none, and prints
// how many of 12 there are; then gives it back and takes once more. WHAT: "variables" of
// modules or of a "library", the "heap" of device code, its "printf" buffer, its "stack" (8 KiB for
// each thread at a time), "kept" by pools after frees, "waiting" frees in a stream that waits,
// "destroyed" pools with such frees, allocations behind what destroyed "graphs" have kept, "local"
// memory of kernels (2 KiB more for each thread at a time).
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/e2e/programs/driver_check.h"

namespace {

constexpr size_t kPiece = size_t{64} << 20;
constexpr int kMost = 12;

std::string image(int number) {
  const std::string bytes = std::to_string(kPiece + number);
  return ".version 7.0\n.target sm_75\n.address_size 64\n.global .align 4 .b8 v[" + bytes +
         "];\n.visible .entry k() { ret; }\n";
}

// Runs a kernel with local memory, every other one in a graph.
CUresult run_local(int number, std::vector<CUmodule>* modules) {
  const std::string bytes = std::to_string(1024 + 2048 * (number + 1));
  const std::string text =
      ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() {\n"
      ".local .align 16 .b8 local[" +
      bytes + "];\nst.local.u32 [local], 1;\nret;\n}\n";
  CUmodule module = nullptr;
  CUfunction kernel = nullptr;
  CUresult result = cuModuleLoadData(&module, text.c_str());
  if (result == CUDA_SUCCESS) modules->push_back(module);
  if (result == CUDA_SUCCESS) result = cuModuleGetFunction(&kernel, module, "k");
  CUgraph graph = nullptr;
  if (result == CUDA_SUCCESS && number % 2 != 0) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = kernel;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
    result = cuGraphCreate(&graph, 0);
    if (result == CUDA_SUCCESS) result = cuGraphAddKernelNode(&node, graph, nullptr, 0, &params);
    if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&exec, graph, 0);
    if (result == CUDA_SUCCESS) result = cuGraphLaunch(exec, nullptr);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(nullptr);
    if (exec != nullptr) cuGraphExecDestroy(exec);
    if (graph != nullptr) cuGraphDestroy(graph);
  } else if (result == CUDA_SUCCESS) {
    result = cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
    if (result == CUDA_SUCCESS) result = cuStreamSynchronize(nullptr);
  }
  return result;
}

CUresult grow_limit(CUlimit limit, size_t by) {
  size_t value = 0;
  const CUresult result = cuCtxGetLimit(&value, limit);
  return result == CUDA_SUCCESS ? cuCtxSetLimit(limit, value + by) : result;
}

// A pool that keeps everything.
CUresult make_pool(CUmemoryPool* pool) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const CUresult result = cuMemPoolCreate(pool, &properties);
  if (result != CUDA_SUCCESS) return result;
  cuuint64_t everything = UINT64_MAX;
  return cuMemPoolSetAttribute(*pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything);
}

// A graph that allocates and frees, runs once and goes.
CUresult run_graph() {
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = kPiece;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUgraphNode allocate = nullptr, free = nullptr;
  CUresult result = cuGraphCreate(&graph, 0);
  if (result == CUDA_SUCCESS)
    result = cuGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &params);
  if (result == CUDA_SUCCESS)
    result = cuGraphAddMemFreeNode(&free, graph, &allocate, 1, params.dptr);
  if (result == CUDA_SUCCESS) result = cuGraphInstantiate(&exec, graph, 0);
  if (result == CUDA_SUCCESS) result = cuGraphLaunch(exec, nullptr);
  if (result == CUDA_SUCCESS) result = cuStreamSynchronize(nullptr);
  if (exec != nullptr) cuGraphExecDestroy(exec);
  if (graph != nullptr) cuGraphDestroy(graph);
  return result;
}

struct Taken {
  std::vector<CUdeviceptr> memory;
  std::vector<CUmodule> modules;
  std::vector<CUlibrary> libraries;
  std::vector<CUmemoryPool> pools;
};

// Memory of a pool that is freed in `stream`, and waits for that if `stream` is the default stream.
CUresult take_freed(CUmemoryPool pool, CUstream stream) {
  CUdeviceptr memory = 0;
  CUresult result = pool == nullptr ? cuMemAllocAsync(&memory, kPiece, nullptr)
                                    : cuMemAllocFromPoolAsync(&memory, kPiece, pool, nullptr);
  if (result == CUDA_SUCCESS) result = cuStreamSynchronize(nullptr);
  if (result == CUDA_SUCCESS) result = cuMemFreeAsync(memory, stream);
  if (result == CUDA_SUCCESS && stream == nullptr) result = cuStreamSynchronize(nullptr);
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto is = [&](const char* what) { return std::strcmp(argv[1], what) == 0; };
  const CUlimit limit = is("heap")     ? CU_LIMIT_MALLOC_HEAP_SIZE
                        : is("printf") ? CU_LIMIT_PRINTF_FIFO_SIZE
                                       : CU_LIMIT_STACK_SIZE;
  CUcontext context;
  CUstream stream;
  CUdeviceptr word;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CHECK(cuMemAlloc(&word, 4));
  CHECK(cuMemsetD32(word, 0, 1));
  const bool waits = is("waiting") || is("destroyed");
  if (waits) CHECK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  size_t before = 0;
  CHECK(cuCtxGetLimit(&before, limit));
  Taken taken;
  const auto take = [&](int number) -> CUresult {
    CUresult result = CUDA_SUCCESS;
    if (is("variables")) {
      CUmodule module = nullptr;
      result = cuModuleLoadData(&module, image(number).c_str());
      if (result == CUDA_SUCCESS) taken.modules.push_back(module);
    } else if (is("library")) {
      CUlibrary library = nullptr;
      result = cuLibraryLoadData(&library, image(number).c_str(), nullptr, nullptr, 0, nullptr,
                                 nullptr, 0);
      if (result == CUDA_SUCCESS) taken.libraries.push_back(library);
    } else if (is("kept") || is("destroyed")) {
      CUmemoryPool pool = nullptr;
      result = make_pool(&pool);
      if (result == CUDA_SUCCESS) result = take_freed(pool, waits ? stream : nullptr);
      if (waits && result == CUDA_SUCCESS) return cuMemPoolDestroy(pool);
      taken.pools.push_back(pool);
    } else if (is("local")) {
      result = run_local(number, &taken.modules);
    } else if (is("graphs")) {
      result = run_graph();
      CUdeviceptr memory = 0;
      if (result == CUDA_SUCCESS) result = cuMemAlloc(&memory, kPiece);
      if (result == CUDA_SUCCESS) taken.memory.push_back(memory);
    } else if (is("waiting")) {
      result = take_freed(nullptr, stream);
    } else {
      result = grow_limit(limit, is("stack") ? 8192 : kPiece);
    }
    return result;
  };
  int made = 0, most = 0;
  cuuint64_t reserved = 0;
  for (CUresult result = CUDA_SUCCESS; made < kMost; ++made) {
    result = take(made);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
    CHECK(result);
    if (!is("graphs")) continue;
    CHECK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
    most = std::max(most, made + 1 + static_cast<int>(reserved / kPiece));
  }
  // Pools may be emptied for others.
  cuuint64_t kept = 0;
  for (CUmemoryPool pool : taken.pools) {
    CHECK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    kept += reserved;
  }
  std::printf("%d\n", is("kept") ? static_cast<int>(kept / kPiece) : std::max(made, most));
  for (CUdeviceptr memory : taken.memory) CHECK(cuMemFree(memory));
  for (CUmodule module : taken.modules) CHECK(cuModuleUnload(module));
  for (CUlibrary library : taken.libraries) CHECK(cuLibraryUnload(library));
  for (CUmemoryPool pool : taken.pools) CHECK(cuMemPoolDestroy(pool));
  CHECK(cuCtxSetLimit(limit, before));
  CHECK(cuMemsetD32(word, 1, 1));
  CHECK(cuCtxSynchronize());
  if (is("local")) {
    CHECK(cuDevicePrimaryCtxReset(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
  }
  // All of it for an allocation.
  CUdeviceptr all = 0;
  CHECK(cuMemAlloc(&all, 4 * kPiece));
  CHECK(cuMemFree(all));
  return 0;
}
