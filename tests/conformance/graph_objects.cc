// What graphs have beyond nodes and edges: memory of their own, user objects, conditional nodes.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/conformance/graphs.h"

namespace {

CUcontext context;
CUstream stream;
CUfunction fill_kernel;
CUdeviceptr a, b;

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

std::atomic<int> destroyed{0};
void CUDA_CB count(void*) { ++destroyed; }

void memory_of_graphs() {
  std::printf("-- memory\n");
  CUgraph graph;
  CUgraphNode alloc, set, node;
  CUgraphExec exec, second;
  NEED(cuGraphCreate(&graph, 0));
  auto params = memory_params(1 << 20);
  SHOW(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  const CUdeviceptr p = params.dptr;
  VALUE(p != 0);
  const auto memset = memset_params(p, 12, kWords);
  SHOW(cuGraphAddMemsetNode(&set, graph, &alloc, 1, &memset, context));
  SHOW(cuGraphMemAllocNodeGetParams(alloc, &params));
  VALUE(params.dptr == p);
  VALUE(params.bytesize);
  params.bytesize = 0;
  SHOW(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params));
  SHOW(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, nullptr));

  // What a graph with memory cannot do.
  CUgraph clone, parent;
  SHOW(cuGraphClone(&clone, graph));
  SHOW(cuGraphDestroyNode(set));
  SHOW(cuGraphRemoveDependencies(graph, &alloc, &set, nullptr, 1));
  NEED(cuGraphCreate(&parent, 0));
  SHOW(cuGraphAddChildGraphNode(&node, parent, nullptr, 0, graph));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphInstantiate(&second, graph, 0));  // one at a time

  // The memory is there from the launch until it is freed, always at this address.
  cuuint64_t used = 1, reserved = 0;
  SHOW(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  VALUE(used);
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuGraphLaunch(exec, stream));  // not freed yet
  SHOW(cuStreamSynchronize(stream));
  show_first("p", p);
  NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  VALUE(used >= (1 << 20));
  SHOW(cuMemFreeAsync(p, stream));
  SHOW(cuMemFreeAsync(p, stream));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("p", p);
  SHOW(cuMemFree(p));
  SHOW(cuMemFree(p));
  // A driver gives memory back in its own time.
  NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  VALUE(used <= (64 << 20));
  NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
  VALUE(used >= (1 << 20));
  used = 0;
  SHOW(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
  NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &used));
  VALUE(used <= (64 << 20));
  SHOW(cuDeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  SHOW(cuDeviceGraphMemTrim(0));
  NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
  VALUE(reserved);
  SHOW(cuDeviceGraphMemTrim(99));
  NEED(cuGraphExecDestroy(exec));

  // Another graph frees it; its own then cannot.
  CUgraphExec freeing;
  CUgraphNode free_node;
  SHOW(cuGraphAddMemFreeNode(&free_node, parent, nullptr, 0, p));
  CUdeviceptr freed = 0;
  SHOW(cuGraphMemFreeNodeGetParams(free_node, &freed));
  VALUE(freed == p);
  SHOW(cuGraphAddMemFreeNode(&node, graph, &set, 1, p));
  SHOW(cuGraphInstantiate(&freeing, parent, 0));
  SHOW(cuGraphInstantiate(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  cuuint64_t flags = 0;
  SHOW(cuGraphExecGetFlags(exec, &flags));
  VALUE(flags);
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuGraphLaunch(exec, stream));  // frees what the first one left
  SHOW(cuGraphLaunch(freeing, stream));
  SHOW(cuStreamSynchronize(stream));
  // A driver gives memory back in its own time.
  NEED(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  VALUE(used <= (64 << 20));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphExecDestroy(freeing));
  NEED(cuGraphDestroy(parent));
  NEED(cuGraphDestroy(graph));

  // Allocated and freed in one graph, which can be launched again and again.
  NEED(cuGraphCreate(&graph, 0));
  params.bytesize = 4096;
  NEED(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  FillParams fill{params.dptr, 3, kWords};
  const auto kernel = fill.node(fill_kernel);
  SHOW(cuGraphAddKernelNode(&set, graph, &alloc, 1, &kernel));
  const auto copy = copy_params(b, params.dptr, 4);
  SHOW(cuGraphAddMemcpyNode(&node, graph, &set, 1, &copy, context));
  SHOW(cuGraphAddMemFreeNode(&free_node, graph, &node, 1, params.dptr));
  SHOW(cuGraphAddMemFreeNode(&free_node, graph, &node, 1, params.dptr));  // twice
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("b", b);
  SHOW(cuMemFreeAsync(params.dptr, stream));
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

void user_objects() {
  std::printf("-- user objects\n");
  CUuserObject object;
  CUgraph graph, clone;
  CUgraphExec exec;
  const auto ended = [] {
    // The destructor runs on a thread of the driver.
    for (int i = 0; i < 200 && destroyed == 0; ++i) cuStreamSynchronize(stream), nap();
    return destroyed.load();
  };
  NEED(cuGraphCreate(&graph, 0));
  destroyed = 0;
  SHOW(cuUserObjectCreate(&object, nullptr, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuUserObjectCreate(&object, nullptr, count, 1, 0));
  SHOW(cuUserObjectCreate(&object, nullptr, count, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuUserObjectCreate(nullptr, nullptr, count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuUserObjectCreate(&object, nullptr, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  SHOW(cuUserObjectRetain(object, 2));
  SHOW(cuUserObjectRetain(object, 0));
  SHOW(cuUserObjectRelease(object, 2));
  SHOW(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  SHOW(cuGraphRetainUserObject(graph, object, 1, 8));
  SHOW(cuGraphRetainUserObject(graph, object, 1, 0));
  SHOW(cuGraphReleaseUserObject(graph, object, 1));
  SHOW(cuGraphReleaseUserObject(graph, object, 5));
  SHOW(cuGraphClone(&clone, graph));
  SHOW(cuGraphInstantiate(&exec, clone, 0));
  SHOW(cuGraphDestroy(graph));
  SHOW(cuGraphDestroy(clone));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  VALUE(destroyed);
  SHOW(cuGraphExecDestroy(exec));
  VALUE(ended());
}

void conditions() {
  std::printf("-- conditional nodes\n");
  CUgraph graph;
  CUgraphExec exec;
  CUgraphConditionalHandle handle;
  NEED(cuGraphCreate(&graph, 0));
  SHOW(cuGraphConditionalHandleCreate(nullptr, graph, context, 0, 0));
  SHOW(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 8));
  SHOW(cuGraphConditionalHandleCreate(&handle, nullptr, context, 0, 0));
  NEED(cuGraphDestroy(graph));

  // Every kind chooses by the default value.
  struct Case {
    CUgraphConditionalNodeType type;
    unsigned size, value;
  };
  for (const Case& one :
       {Case{CU_GRAPH_COND_TYPE_IF, 1, 1}, Case{CU_GRAPH_COND_TYPE_IF, 1, 0},
        Case{CU_GRAPH_COND_TYPE_IF, 2, 0}, Case{CU_GRAPH_COND_TYPE_WHILE, 1, 0},
        Case{CU_GRAPH_COND_TYPE_SWITCH, 3, 2}, Case{CU_GRAPH_COND_TYPE_SWITCH, 3, 3}}) {
    NEED(cuMemsetD32(a, 0, kWords));
    NEED(cuCtxSynchronize());
    NEED(cuGraphCreate(&graph, 0));
    NEED(cuGraphConditionalHandleCreate(&handle, graph, context, one.value,
                                        CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional = {handle, one.type, one.size, nullptr, context};
    CUgraphNode node, inner;
    SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
    for (unsigned i = 0; i < one.size; ++i) {
      const auto memset = memset_params(a, 100 + i, kWords);
      NEED(cuGraphAddMemsetNode(&inner, params.conditional.phGraph_out[i], nullptr, 0, &memset,
                                context));
    }
    NEED(cuGraphInstantiate(&exec, graph, 0));
    NEED(cuGraphLaunch(exec, stream));
    SHOW(cuStreamSynchronize(stream));
    show_first("a", a);
    NEED(cuGraphExecDestroy(exec));
    NEED(cuGraphDestroy(graph));
  }

  // Wrong ones.
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNode node;
  for (const Case& one : {Case{CU_GRAPH_COND_TYPE_WHILE, 2, 0}, Case{CU_GRAPH_COND_TYPE_IF, 3, 0},
                          Case{CU_GRAPH_COND_TYPE_SWITCH, 0, 0}}) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional = {handle, one.type, one.size, nullptr, context};
    SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  }
  CUDA_GRAPH_INSTANTIATE_PARAMS instantiate{};
  SHOW(cuGraphInstantiateWithParams(&exec, graph, &instantiate));
  VALUE(instantiate.result_out);
  NEED(cuGraphDestroy(graph));
}

CUgraphNode add_condition(CUgraph graph) {
  CUgraphConditionalHandle handle;
  SHOW(cuGraphConditionalHandleCreate(&handle, graph, context, 0, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional = {handle, CU_GRAPH_COND_TYPE_IF, 1, nullptr, context};
  CUgraphNode node = nullptr;
  SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  return node;
}

void try_uses(CUgraph graph) {
  CUgraph clone, around;
  CUgraphNode node;
  CUgraphExec first, second;
  NEED(cuGraphCreate(&around, 0));
  SHOW(cuGraphClone(&clone, graph));
  SHOW(cuGraphAddChildGraphNode(&node, around, nullptr, 0, graph));
  SHOW(cuGraphInstantiate(&first, graph, 0));
  SHOW(cuGraphInstantiate(&second, graph, 0));
  NEED(cuGraphDestroy(around));
}

// A graph whose condition has gone, or never came.
void handles_without_a_node() {
  std::printf("-- handles without a node\n");
  CUgraph graph;
  CUgraphConditionalHandle handle;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphConditionalHandleCreate(&handle, graph, context, 0, 0));
  try_uses(graph);
  NEED(cuGraphDestroy(graph));
  NEED(cuGraphCreate(&graph, 0));
  CUgraphNode node = add_condition(graph);
  SHOW(cuGraphDestroyNode(node));
  try_uses(graph);
  NEED(cuGraphDestroy(graph));
}

// Of a graph with conditions or memory there is one executable graph; what was made of it before
// counts for conditions.
void made_executable_before() {
  std::printf("-- made executable before\n");
  for (const bool with_memory : {false, true}) {
    for (const bool stays : {true, false}) {
      std::printf("%s, %s\n", with_memory ? "memory" : "a condition", stays ? "stays" : "goes");
      CUgraph graph;
      CUgraphExec before, after;
      CUgraphNode node;
      NEED(cuGraphCreate(&graph, 0));
      NEED(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
      SHOW(cuGraphInstantiate(&before, graph, 0));
      if (!stays) SHOW(cuGraphExecDestroy(before));
      auto memory = memory_params(100);
      if (with_memory)
        SHOW(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &memory));
      else
        add_condition(graph);
      SHOW(cuGraphInstantiate(&after, graph, 0));
      SHOW(cuGraphInstantiate(&after, graph, 0));
      if (!stays) continue;
      SHOW(cuGraphLaunch(before, stream));
      SHOW(cuStreamSynchronize(stream));
      SHOW(cuGraphExecDestroy(before));
      SHOW(cuGraphInstantiate(&after, graph, 0));
    }
  }
}

// Once a graph frees its memory, no new node may use it.
void memory_that_is_freed() {
  std::printf("-- memory that is freed\n");
  CUgraph graph, without;
  CUgraphNode alloc, fill, copy, freed, late;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphCreate(&without, 0));
  auto memory = memory_params(kWords * 4);
  NEED(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &memory));
  const CUdeviceptr p = memory.dptr;
  const auto filled = memset_params(p, 5, kWords);
  const auto out = copy_params(a, p, 4), in = copy_params(p, a, 4), beside = copy_params(b, a, 4);
  SHOW(cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &filled, context));
  SHOW(cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &out, context));
  SHOW(cuGraphAddMemcpyNode(&late, graph, &alloc, 1, &beside, context));
  const auto try_nodes = [&] {
    CUgraphNode node;
    for (const CUDA_MEMCPY3D& params : {out, in}) {
      SHOW(cuGraphAddMemcpyNode(&node, graph, &alloc, 1, &params, context));
      SHOW(cuGraphAddMemcpyNode(&node, without, nullptr, 0, &params, context));
    }
    SHOW(cuGraphAddMemsetNode(&node, graph, &alloc, 1, &filled, context));
    SHOW(cuGraphMemcpyNodeSetParams(late, &out));
    SHOW(cuGraphMemcpyNodeSetParams(late, &beside));
    SHOW(cuGraphMemcpyNodeSetParams(copy, &out));
    SHOW(cuGraphMemsetNodeSetParams(fill, &filled));
  };
  SHOW(cuGraphAddMemFreeNode(&freed, graph, &copy, 1, p));
  try_nodes();
  CUgraphExec exec;
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  SHOW(cuGraphLaunch(exec, stream));
  SHOW(cuStreamSynchronize(stream));
  show_first("a", a);
  try_nodes();
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
  NEED(cuGraphDestroy(without));
}

// A copy within the host that comes to use memory which the graph frees.
void copy_comes_to_use_memory() {
  std::printf("-- a copy comes to use memory\n");
  CUgraph graph;
  CUgraphNode alloc, fill, copy, freed;
  NEED(cuGraphCreate(&graph, 0));
  auto memory = memory_params(kWords * 4);
  NEED(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &memory));
  const auto filled = memset_params(memory.dptr, 7, kWords);
  NEED(cuGraphAddMemsetNode(&fill, graph, &alloc, 1, &filled, context));
  uint32_t from = 1, to = 0;
  CUDA_MEMCPY3D within = row(4);
  within.srcMemoryType = within.dstMemoryType = CU_MEMORYTYPE_HOST;
  within.srcHost = &from;
  within.dstHost = &to;
  NEED(cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &within, context));
  NEED(cuGraphAddMemFreeNode(&freed, graph, &copy, 1, memory.dptr));
  const auto run_with = [&](const CUDA_MEMCPY3D& params) {
    CUgraphExec exec;
    SHOW(cuGraphMemcpyNodeSetParams(copy, &params));
    to = 0;
    SHOW(cuGraphInstantiate(&exec, graph, 0));
    SHOW(cuGraphLaunch(exec, stream));
    SHOW(cuStreamSynchronize(stream));
    VALUE(to);
    NEED(cuGraphExecDestroy(exec));
  };
  const auto out = copy_params(&to, memory.dptr, 4);
  run_with(within);
  run_with(out);
  run_with(within);
  run_with(out);
  run_with(copy_params(a, memory.dptr, 4));
  show_first("a", a);
  NEED(cuGraphDestroy(graph));
}

// A priority outside of the device's range becomes the nearest one.
void priorities() {
  std::printf("-- priorities\n");
  CUgraph graph;
  CUgraphNode node;
  NEED(cuGraphCreate(&graph, 0));
  FillParams params{a, 1, kWords};
  const auto kernel = params.node(fill_kernel);
  NEED(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel));
  for (const int priority : {0, -1, -5, -6, -100, 1, 100}) {
    CUlaunchAttributeValue value{};
    value.priority = priority;
    SHOW(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    value.priority = 77;
    SHOW(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
    VALUE(value.priority);
  }
  // Executable graphs that heed them, and that are uploaded at once.
  for (cuuint64_t flags = 0; flags < 16; ++flags) {
    for (const CUstream upload : {CUstream{}, stream}) {
      CUDA_GRAPH_INSTANTIATE_PARAMS made{};
      made.flags = flags;
      made.hUploadStream = upload;
      CUgraphExec exec;
      const CUresult result = cuGraphInstantiateWithParams(&exec, graph, &made);
      std::printf("flags %d: %s %d\n", static_cast<int>(flags), error_name(result),
                  static_cast<int>(made.result_out));
      if (result != CUDA_SUCCESS) continue;
      cuuint64_t told = 99;
      SHOW(cuGraphExecGetFlags(exec, &told));
      VALUE(told);
      SHOW(cuGraphLaunch(exec, stream));
      SHOW(cuStreamSynchronize(stream));
      NEED(cuGraphExecDestroy(exec));
    }
  }
  show_first("a", a);
  NEED(cuGraphDestroy(graph));
}

// A kernel counts down and sets the condition of the loop that it is in.
void loop() {
  std::printf("-- a loop\n");
  CUmodule module;
  CUfunction count_down;
  NEED(cuModuleLoadData(&module, kCountDown));
  NEED(cuModuleGetFunction(&count_down, module, "count_down"));
  CUgraph graph;
  CUgraphExec exec;
  CUgraphConditionalHandle handle;
  CUgraphNode node, inner;
  NEED(cuGraphCreate(&graph, 0));
  NEED(cuGraphConditionalHandleCreate(&handle, graph, context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional = {handle, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, context};
  SHOW(cuGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
  void* pointers[] = {&a, &b, &handle};
  const auto kernel = kernel_params(count_down, pointers, 1);
  SHOW(cuGraphAddKernelNode(&inner, params.conditional.phGraph_out[0], nullptr, 0, &kernel));
  SHOW(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    NEED(cuMemsetD32(a, 5, 1));
    NEED(cuMemsetD32(b, 0, 1));
    NEED(cuCtxSynchronize());
    SHOW(cuGraphLaunch(exec, stream));
    SHOW(cuStreamSynchronize(stream));
    show_first("left", a);
    show_first("turns", b);
  }
  NEED(cuGraphExecDestroy(exec));
  NEED(cuGraphDestroy(graph));
}

}  // namespace

int main() {
  const World world;
  context = world.context;
  stream = world.stream;
  fill_kernel = world.fill;
  a = world.a;
  b = world.b;
  memory_of_graphs();
  user_objects();
  conditions();
  handles_without_a_node();
  made_executable_before();
  memory_that_is_freed();
  copy_comes_to_use_memory();
  priorities();
  loop();
  return 0;
}
