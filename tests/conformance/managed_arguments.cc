// What calls read and write for the application lies in managed memory whose contents are on the
// device: parameters of kernels, names, images, structures, arrays, answers.
#include "tests/conformance/conformance.h"
#include "tests/conformance/kernels.h"

namespace {

CUfunction fill;
CUdeviceptr plain;

// Work takes all managed memory from the host.
void take() {
  CUdeviceptr p = plain;
  unsigned value = 7, n = 1;
  void* parameters[] = {&p, &value, &n};
  NEED(cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, nullptr, parameters, nullptr));
  NEED(cuCtxSynchronize());
}

#define TAKEN(...) \
  do {             \
    take();        \
    __VA_ARGS__;   \
  } while (0)

template <typename T>
T* managed(size_t count = 1) {
  CUdeviceptr p = 0;
  constexpr size_t kBytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression): T may be a handle
  NEED(cuMemAllocManaged(&p, count * kBytes, CU_MEM_ATTACH_GLOBAL));
  return reinterpret_cast<T*>(p);
}

struct Fill {
  CUdeviceptr to;
  unsigned value, n;
  void* parameters[3];
  CUDA_KERNEL_NODE_PARAMS node;
  CUgraphNode first;
};

unsigned at_plain() {
  unsigned value = 0;
  NEED(cuMemcpyDtoH(&value, plain, sizeof value));
  return value;
}

void parameters_of_kernels() {
  auto* const words = managed<unsigned>(1024);
  auto* const box = managed<Fill>();
  *box = {reinterpret_cast<CUdeviceptr>(words), 5, 1024, {}, {}, {}};
  box->parameters[0] = &box->to;
  box->parameters[1] = &box->value;
  box->parameters[2] = &box->n;
  TAKEN(SHOW(cuLaunchKernel(fill, 4, 1, 1, 256, 1, 1, 0, nullptr, box->parameters, nullptr)));
  NEED(cuCtxSynchronize());
  VALUE(words[1023]);
  box->value = 6;
  CUDA_KERNEL_NODE_PARAMS& node = box->node;
  node.func = fill;
  node.gridDimX = 4, node.gridDimY = node.gridDimZ = 1;
  node.blockDimX = 256, node.blockDimY = node.blockDimZ = 1;
  node.kernelParams = box->parameters;
  CUgraph graph;
  CUgraphNode made;
  CUgraphExec executable;
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphAddEmptyNode(&box->first, graph, nullptr, 0));
  TAKEN(SHOW(cuGraphAddKernelNode(&made, graph, &box->first, 1, &node)));
  NEED(cuGraphInstantiate(&executable, graph, 0));
  NEED(cuGraphLaunch(executable, nullptr));
  NEED(cuCtxSynchronize());
  VALUE(words[1023]);
  NEED(cuGraphExecDestroy(executable));
  NEED(cuGraphDestroy(graph));
}

void names_and_images() {
  const size_t bytes = std::strlen(kKernels) + 1;
  auto* const image = managed<char>(bytes);
  auto* const name = managed<char>(16);
  std::memcpy(image, kKernels, bytes);
  std::strcpy(name, "fill");
  auto* const module = managed<CUmodule>();
  auto* const function = managed<CUfunction>();
  auto* const value = managed<int>();
  TAKEN(SHOW(cuModuleLoadData(module, image)));
  TAKEN(SHOW(cuModuleGetFunction(function, *module, name)));
  TAKEN(SHOW(cuFuncGetAttribute(value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, *function)));
  VALUE(*value);
  TAKEN(SHOW(cuOccupancyMaxActiveBlocksPerMultiprocessor(value, *function, 128, 0)));
  VALUE(*value > 0);
  CUlinkState link;
  NEED(cuLinkCreate(0, nullptr, nullptr, &link));
  std::strcpy(name, "a name");
  TAKEN(SHOW(cuLinkAddData(link, CU_JIT_INPUT_PTX, image, bytes, name, 0, nullptr, nullptr)));
  NEED(cuLinkDestroy(link));
  NEED(cuModuleUnload(*module));
}

void answers() {
  auto* const memory = managed<CUdeviceptr>();
  auto* const stream = managed<CUstream>();
  auto* const event = managed<CUevent>();
  auto* const sizes = managed<size_t>(2);
  auto* const elapsed = managed<float>();
  TAKEN(SHOW(cuMemAlloc(memory, 64)));
  TAKEN(NEED(cuMemFree(*memory)));
  TAKEN(SHOW(cuMemAllocManaged(memory, 64, CU_MEM_ATTACH_GLOBAL)));
  TAKEN(NEED(cuMemFree(*memory)));
  TAKEN(SHOW(cuStreamCreate(stream, CU_STREAM_DEFAULT)));
  TAKEN(SHOW(cuEventCreate(event, CU_EVENT_DEFAULT)));
  TAKEN(SHOW(cuEventRecord(*event, *stream)));
  NEED(cuEventSynchronize(*event));
  TAKEN(SHOW(cuEventElapsedTime(elapsed, *event, *event)));
  TAKEN(SHOW(cuMemGetInfo(&sizes[0], &sizes[1])));
  VALUE(sizes[1] != 0);
  TAKEN(SHOW(cuMemcpyDtoH(elapsed, plain, sizeof(float))));
  TAKEN(NEED(cuEventDestroy(*event)));
  TAKEN(NEED(cuStreamDestroy(*stream)));
}

struct Structures {
  CUDA_ARRAY_DESCRIPTOR array;
  CUDA_RESOURCE_DESC resource;
  CUDA_TEXTURE_DESC texture;
  CUmemAllocationProp properties;
  CUmemAccessDesc access;
  CUmemPoolProps pool;
  uint64_t threshold;
  CUDA_MEMCPY2D copy;
  CUDA_MEMSET_NODE_PARAMS set;
  CUstreamBatchMemOpParams operation;
  CUdeviceptr sources[2], targets[2];
  size_t sizes[2], firsts[2];
  CUmemcpyAttributes attributes;
};

void structures() {
  auto* const all = managed<Structures>();
  CUstream stream;
  NEED(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  all->array = {64, 64, CU_AD_FORMAT_FLOAT, 1};
  CUarray array;
  TAKEN(SHOW(cuArrayCreate(&array, &all->array)));
  NEED(cuArrayDestroy(array));
  all->resource.resType = CU_RESOURCE_TYPE_LINEAR;
  all->resource.res.linear = {plain, CU_AD_FORMAT_FLOAT, 1, 4096};
  CUtexObject texture;
  TAKEN(SHOW(cuTexObjectCreate(&texture, &all->resource, &all->texture, nullptr)));
  NEED(cuTexObjectDestroy(texture));

  const CUmemLocation gpu = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  constexpr size_t kBytes = 2 << 20;
  all->properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  all->properties.location = gpu;
  all->access = {gpu, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle physical;
  CUdeviceptr address;
  TAKEN(SHOW(cuMemCreate(&physical, kBytes, &all->properties, 0)));
  NEED(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
  NEED(cuMemMap(address, kBytes, 0, physical, 0));
  TAKEN(SHOW(cuMemSetAccess(address, kBytes, &all->access, 1)));
  NEED(cuMemUnmap(address, kBytes));
  NEED(cuMemAddressFree(address, kBytes));
  NEED(cuMemRelease(physical));
  all->pool.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  all->pool.location = gpu;
  CUmemoryPool pool;
  TAKEN(SHOW(cuMemPoolCreate(&pool, &all->pool)));
  all->threshold = 4096;
  TAKEN(SHOW(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all->threshold)));
  all->threshold = 0;
  TAKEN(SHOW(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all->threshold)));
  VALUE(all->threshold);
  NEED(cuMemPoolDestroy(pool));

  unsigned got[2] = {};
  all->copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  all->copy.srcDevice = plain;
  all->copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  all->copy.dstHost = got;
  all->copy.WidthInBytes = sizeof(unsigned);
  all->copy.Height = 1;
  TAKEN(SHOW(cuMemcpy2D(&all->copy)));
  VALUE(got[0]);
  all->operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  all->operation.writeValue.address = plain;
  all->operation.writeValue.value = 9;
  TAKEN(SHOW(cuStreamBatchMemOp(stream, 1, &all->operation, 0)));
  NEED(cuStreamSynchronize(stream));
  VALUE(at_plain());
  all->sources[0] = plain;
  all->targets[0] = plain + 64;
  all->sizes[0] = 4;
  all->attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
#if CUDA_VERSION >= 13000
  TAKEN(SHOW(cuMemcpyBatchAsync(all->targets, all->sources, all->sizes, 1, &all->attributes,
                                all->firsts, 1, stream)));
#endif
  NEED(cuStreamSynchronize(stream));
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  all->set.dst = plain;
  all->set.elementSize = 4;
  all->set.width = 4;
  all->set.height = 1;
  CUcontext context;
  NEED(cuCtxGetCurrent(&context));
  TAKEN(SHOW(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &all->set, context)));
  NEED(cuGraphDestroy(graph));
  NEED(cuStreamDestroy(stream));
}

// It is mapped memory in the worker, and must not be taken for the application's.
void no_mapped_memory() {
  constexpr size_t kBytes = 2 << 20;
  const auto p = reinterpret_cast<CUdeviceptr>(managed<char>(kBytes));
  CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  unsigned long long flags = 0;
  CUmemGenericAllocationHandle handle;
  SHOW(cuMemSetAccess(p, kBytes, &access, 1));
  SHOW(cuMemGetAccess(&flags, &access.location, p));
  SHOW(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(p)));
  SHOW(cuMemUnmap(p, kBytes));
  SHOW(cuMemAddressFree(p, kBytes));
  *reinterpret_cast<unsigned*>(p) = 3;
  take();
  VALUE(*reinterpret_cast<unsigned*>(p));
}

void synchronous_operations() {
  const auto p = reinterpret_cast<CUdeviceptr>(managed<char>(4096));
  auto sync = CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  for (const unsigned value : {1u, 0u}) {
    unsigned alone = 9, listed = 9;
    void* const places[] = {&listed};
    SHOW(cuPointerSetAttribute(&value, sync, p));
    SHOW(cuPointerGetAttribute(&alone, sync, p));
    SHOW(cuPointerGetAttributes(1, &sync, const_cast<void**>(places), p));
    std::printf("  %u %u\n", alone, listed);
  }
}

}  // namespace

int main() {
  make_context();
  CUmodule module;
  NEED(cuModuleLoadData(&module, kKernels));
  NEED(cuModuleGetFunction(&fill, module, "fill"));
  NEED(cuMemAlloc(&plain, 4096));
  parameters_of_kernels();
  names_and_images();
  answers();
  structures();
  no_mapped_memory();
  synchronous_operations();
  return 0;
}
